"""Python works on what Node added: `python -m examples.mixed_fleet.worker [URL]`, until SIGTERM."""

import sys
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec

from bullmq_anyio import Job, Router, Worker, run_workers


class Order(msgspec.Struct):
    at: datetime
    big: str
    missing: str = "was not sent"


router = Router()


@router("describe", data_type=Order)
async def describe(job: Job[Order]) -> dict[str, Any]:
    await job.update_progress({"half": 50})
    return {"at": job.data.at.astimezone(UTC), "big": str(int(job.data.big) + 1), "missing": job.data.missing}


@router("fail")
async def fail(job: Job[Any]) -> None:
    raise ValueError(f"attempt {job.attempts_made + 1}")


if __name__ == "__main__":
    anyio.run(run_workers, Worker("python-works", router, sys.argv[1] if len(sys.argv) > 1 else "redis://localhost"))
