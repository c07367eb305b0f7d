"""gunicorn's settings for `flask_app`: two processes, forked from one that has loaded the application."""

from typing import Any

from examples import flask_app

wsgi_app = "examples.flask_app:app"
preload_app = True
workers = 2
worker_class = "gthread"
threads = 8


def post_fork(server: Any, worker: Any) -> None:
    """Start what runs a thread, in each process: a fork copies the thread that forks and no other."""
    flask_app.events.__enter__()


def worker_exit(server: Any, worker: Any) -> None:
    """End that thread, and close the connection of this process."""
    flask_app.events.close()
    flask_app.queue.close()
