"""The project's settings. The server of the queues is that of `BULLMQ_URL`."""

import os
from importlib.util import find_spec
from pathlib import Path

SECRET_KEY = "only for this example"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
INSTALLED_APPS = ["shop", "bullmq_django", "bullmq_django.outbox"]
if find_spec("django.tasks") is None:
    # Django before 6.0.
    INSTALLED_APPS.append("django_tasks")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"

if "SHOP_POSTGRES" in os.environ:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": "127.0.0.1",
            "PORT": os.environ["SHOP_POSTGRES"],
            "USER": "postgres",
            "NAME": "postgres",
        }
    }
else:
    folder = Path(__file__).parents[1]
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("SHOP_SQLITE", folder / "shop.sqlite3"),
            "OPTIONS": {"timeout": 20},
        }
    }

TASKS = {
    "default": {
        "BACKEND": "bullmq_django.BullMQBackend",
        "QUEUES": ["shop-orders", "shop-mail"],
        "OPTIONS": {"prefix": os.environ.get("SHOP_PREFIX", "bull")},
    }
}
