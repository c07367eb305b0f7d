"""What runs in the workers."""

from django.db import transaction

try:
    from django.tasks import task
except ModuleNotFoundError:
    # Django before 6.0.
    from django_tasks import task

from shop.models import Order


@task(queue_name="shop-orders")
def confirm(order_id: int) -> str:
    """Confirm an order, and write to the customer once that is stored."""
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        order.state = "confirmed"
        order.save()
        transaction.on_commit(lambda: write.enqueue(order.pk, subject="confirmed"))
    return order.address


@task(queue_name="shop-mail", priority=10, takes_context=True)
async def write(context, order_id: int, *, subject: str) -> dict[str, object]:
    """Write to the customer."""
    order = await Order.objects.aget(pk=order_id)
    await Order.objects.filter(pk=order_id).aupdate(state="written")
    return {"to": order.address, "subject": subject, "attempt": context.attempt}


@task(queue_name="shop-orders")
def refuse(reason: str) -> None:
    """Fail."""
    raise LookupError(reason)
