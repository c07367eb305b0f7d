"""Monque, the job scheduler on MongoDB, for asyncio and trio, on pymongo."""

from monque_anyio.monque import Monque, QueueView, WorkerView

__all__ = ["Monque", "QueueView", "WorkerView"]
