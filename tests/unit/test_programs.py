"""The programs of the interop tests: what does not end."""

import subprocess
import sys

import pytest

from tests.support import programs
from tests.support.programs import Program

NEVER_ENDS = [sys.executable, "-c", 'import signal; print(\'{"event": "ready"}\', flush=True); signal.pause()']


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(programs, "_OTHERS_PATIENCE_S", 0.0)


def test_a_program_of_ours_that_does_not_end_is_a_failure() -> None:
    program = Program(NEVER_ENDS)
    with pytest.raises(subprocess.TimeoutExpired):
        program.close()


def test_another_s_that_does_not_end_is_killed_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    program = Program(NEVER_ENDS, ends_late=True)
    program.wait(lambda events: events, timeout=60)
    program.close()
    assert capsys.readouterr().err.startswith(f"killed, as it did not end: {NEVER_ENDS!r}; last events: [{{'event'")
