"""Property tests of your own code with the test kit, without a server: `pytest examples/test_properties.py`."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bullmq_protocol import JobOptions, JobRecord, NewJob, QueueKeys, prepare
from bullmq_protocol.testing.scripted import ScriptedTransport
from bullmq_protocol.testing.strategies import job_records, json_values, new_jobs
from bullmq_sync import Queue

KEYS = QueueKeys.of("invoices")


# --- what the program does ------------------------------------------------------------------------------------------


def request_invoice(queue: Queue[Any], order: int, lines: Any) -> str:
    """Ask for an invoice; asking twice for the same order makes one job."""
    return queue.add("invoice", {"order": order, "lines": lines}, JobOptions(job_id=f"order-{order}")).id


def describe(job: JobRecord) -> str:
    """A line for the operators' list, whatever other programs put into the queue."""
    return f"{job.id} {job.name}: attempt {job.attempts_made + 1}, {job.failed_reason or 'no failure'}"


# --- what holds for it ----------------------------------------------------------------------------------------------


@given(st.integers(1, 10**9), json_values())
def test_an_order_has_one_invoice_and_its_lines_arrive_unchanged(order: int, lines: Any) -> None:
    # With a custom id the queue asks the script that also tells whether the job existed.
    transport = ScriptedTransport([("addMany", [f"order-{order}".encode()])])
    assert request_invoice(Queue("invoices", transport, skip_meta_update=True), order, lines) == f"order-{order}"
    transport.check_done()
    (command,) = transport.sent
    assert json.loads(command.args[2]) == {"order": order, "lines": lines}


@given(job_records())
def test_every_job_can_be_described(job: JobRecord) -> None:
    assert describe(job).startswith(job.id)


@given(new_jobs())
def test_every_job_of_the_kit_can_be_prepared(job: NewJob) -> None:
    assert prepare(KEYS, job, now_ms=1_700_000_000_000).packed_options
