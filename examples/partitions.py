"""One load over several queues, each in a slot of its own of a Redis Cluster.

`python -m examples.partitions [URL]`. All orders of one customer are in the same queue, whose worker runs one job at a
time, so they are processed in the order in which they were added; those of other customers run beside them.
"""

import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import anyio

from bullmq_anyio import Job, Queue, Worker, connect, run_workers
from bullmq_protocol import KeyLayout, NewJob, WorkerOptions

PARTITIONS = tuple(f"orders-{number}" for number in range(6))
LAYOUT = KeyLayout.TAGGED_QUEUE


def partition_of(customer: str) -> str:
    """Tell which queue has a customer's orders: the same one in every process, whatever Python's hash seed is."""
    return PARTITIONS[zlib.crc32(customer.encode()) % len(PARTITIONS)]


async def add_orders(queues: Mapping[str, Queue[dict[str, str]]], orders: Sequence[tuple[str, str]]) -> None:
    """Add orders in bulk, one call for each queue, and these at the same time."""
    parts: dict[str, list[NewJob]] = defaultdict(list)
    for customer, order in orders:
        parts[partition_of(customer)].append(NewJob("order", {"customer": customer, "order": order}))
    async with anyio.create_task_group() as group:
        for name, jobs in parts.items():
            group.start_soon(queues[name].add_bulk, jobs)


async def waiting(queues: Mapping[str, Queue[dict[str, str]]]) -> int:
    """Count what waits. Each queue answers at another moment: a job that is added meanwhile may be counted or not."""
    return sum([await queue.get_waiting_count() for queue in queues.values()])


async def main(url: str) -> None:
    done: dict[str, list[str]] = defaultdict(list)

    async def process(job: Job[dict[str, str]]) -> None:
        done[job.data["customer"]].append(job.data["order"])

    async with connect(url) as transport:
        queues = {name: Queue[dict[str, str]](name, transport, layout=LAYOUT) for name in PARTITIONS}
        customers = [f"customer {number}" for number in range(9)]
        await add_orders(queues, [(customer, f"order {n}") for n in range(20) for customer in customers])
        print(await waiting(queues), "orders in", len({partition_of(each) for each in customers}), "queues")
        workers = [
            Worker(name, process, transport, layout=LAYOUT, options=WorkerOptions(concurrency=1)) for name in PARTITIONS
        ]
        await run_workers(*workers, until="idle")
    in_order = all(orders == [f"order {n}" for n in range(20)] for orders in done.values())
    print(sum(map(len, done.values())), "processed, each customer's in order:", in_order)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
