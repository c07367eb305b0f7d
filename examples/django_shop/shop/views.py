"""An order is taken at once; what follows is the workers' affair."""

import json
from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from shop.models import Order
from shop.tasks import confirm


@require_POST
def create(request: HttpRequest) -> JsonResponse:
    """Take an order."""
    with transaction.atomic():
        order = Order.objects.create(address=json.loads(request.body)["address"])
        # A worker may be faster than this transaction: the job is added once the order can be seen.
        transaction.on_commit(partial(confirm.enqueue, order.pk))
    return JsonResponse({"order": order.pk}, status=202)


@require_GET
def show(request: HttpRequest, order_id: int) -> JsonResponse:
    """Tell how far an order has come."""
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"order": order.pk, "state": order.state})
