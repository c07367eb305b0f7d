"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """An order, and how far it has come."""

    address = models.CharField(max_length=200)
    state = models.CharField(max_length=20, default="new")
