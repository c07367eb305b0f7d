"""The addresses."""

from django.urls import path

from shop.views import create, show

urlpatterns = [path("orders", create), path("orders/<int:order_id>", show)]
