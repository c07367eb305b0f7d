"""A short run of the stress, and its own eyes: that it sees a job that is gone."""

import pytest

from tests.stress.stress import Stress
from tests.support.servers import Server

pytestmark = [pytest.mark.alone, pytest.mark.any_server]


def test_stress(server: Server) -> None:
    report = Stress(server.url, 7, 4, callers=32).run()
    assert report.good, report.text()
    assert min(report.counts[what] for what in ("added", "workers", "readers", "kills", "results")) > 0


def test_stress_finds_a_job_that_is_gone(server: Server) -> None:
    stress = Stress(server.url, 8, 1, callers=4)
    stress._note("never-added")
    report = stress.run()
    assert [fault for fault in report.faults if "never-added" in fault], report.text()
