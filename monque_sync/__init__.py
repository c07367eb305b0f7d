"""Monque, the job scheduler on MongoDB, for threads, on pymongo."""

from monque_sync.monque import Monque, QueueView, WorkerView

__all__ = ["Monque", "QueueView", "WorkerView"]
