"""The packed options of moveToFinished are kept per worker, and are those of each job."""

import msgspec
import pytest

from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import KeepJobs
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.outcome import Finishing, finish_options


@pytest.mark.parametrize("completed", [True, False])
def test_kept_options_are_those_of_the_job(completed: bool) -> None:
    settings, _ = WorkerOptions(remove_on_complete=KeepJobs(count=7)).checked(zones=lambda name: None)
    finishing = Finishing(settings)
    texts = [b'{"attempts":%d}' % number for number in range(70)]
    texts += [b"", b'{"removeOnComplete":true,"fpof":true}', b'{"attempts":2,"x":"%b"}' % (b"x" * 5000)]
    for text in [*texts, *texts]:
        job = JobRecord("1", {"opts": text})
        packed = finishing.options(job, "token:1", completed=completed).packed()
        assert packed == finish_options(job, "token:1", settings, completed=completed).packed()
        assert next(iter(msgspec.msgpack.decode(packed))) == "token"


def test_a_job_without_options_shares_what_it_reads_as() -> None:
    plain = JobRecord("1", {"opts": b'{"attempts":0}'})
    spaced = JobRecord("1", {"opts": b'{ "attempts": 0 }'})
    assert plain.opts is JobRecord("2", dict(plain.fields)).opts
    assert plain.opts == spaced.opts
