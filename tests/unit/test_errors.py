"""The error tree and the table of script error codes."""

from __future__ import annotations

import copy
import pickle

import pytest

from bullmq_protocol import errors
from bullmq_protocol.errors import looks_like_login, without_login


@pytest.mark.parametrize("code", sorted(errors.SCRIPT_ERRORS))
def test_each_code_has_a_class_and_a_message(code: int) -> None:
    error = errors.script_error(code, "cmd", job_id="7", parent_key="bull:q:P", state="active")
    assert type(error) is errors.SCRIPT_ERRORS[code]
    assert error.code == code
    assert error.command == "cmd"
    assert "cmd" in str(error) or "Cmd cmd" in str(error)
    assert "{" not in str(error)


def test_codes_are_minus_1_to_minus_11() -> None:
    assert sorted(errors.SCRIPT_ERRORS, reverse=True) == list(range(-1, -12, -1))


def test_an_unknown_code() -> None:
    error = errors.script_error(-42, "cmd")
    assert type(error) is errors.ScriptError
    assert error.code == -42
    assert str(error) == "Unknown code -42 error for undefined. cmd"


def test_a_failed_child_is_unrecoverable() -> None:
    assert isinstance(errors.script_error(-9, "x"), errors.UnrecoverableError)


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (errors.UnrecoverableError, "bullmq:unrecoverable"),
        (errors.DelayedError, "bullmq:movedToDelayed"),
        (errors.WaitingError, "bullmq:movedToWait"),
        (errors.WaitingChildrenError, "bullmq:movedToWaitingChildren"),
        (errors.RateLimitError, "bullmq:rateLimitExceeded"),
    ],
)
def test_signals_have_bullmqs_messages(signal: type[errors.JobSignal], message: str) -> None:
    assert str(signal()) == message
    assert str(signal("mine")) == "mine"


def test_a_transient_error_may_say_when() -> None:
    assert errors.TransientError("x", retry_after_ms=5).retry_after_ms == 5


def test_transport_errors_say_whether_the_command_may_have_run() -> None:
    assert "may have run" in str(errors.ConnectionLost("gone", maybe_applied=True))
    assert "may have run" not in str(errors.TransportTimeout("late", maybe_applied=False))
    assert errors.Closed().maybe_applied is False


def test_usage_errors_are_value_errors() -> None:
    error = errors.UsageError("field", 5, "must be good")
    assert isinstance(error, ValueError)
    assert str(error) == "field: must be good (got 5)"


EVERY = [
    errors.BullMQError("plain"),
    errors.UsageError("field", 5, "must be good"),
    errors.UnexpectedReply("an integer", b"x"),
    errors.ServerError("WRONGTYPE no"),
    errors.AuthenticationFailed("WRONGPASS no"),
    errors.ConnectionLost("gone", maybe_applied=True),
    errors.Closed(),
    errors.TransientError("later", retry_after_ms=5),
    errors.UnrecoverableError(),
    errors.script_error(-2, "moveToFinished", job_id="7"),
    errors.script_error(-42, "cmd"),
    errors.BulkAddError(["1", errors.script_error(-5, "addJob", parent_key="bull:q:P")]),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_errors_can_be_copied_and_pickled(error: errors.BullMQError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.args == error.args
        assert {name: str(value) for name, value in vars(twin).items()} == {
            name: str(value) for name, value in vars(error).items()
        }


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("READONLY You can't write. script: 0a, on @user_script:1.", "READONLY"),
        (
            "ERR Error running script (call to f_0a): @user_script:1: @user_script: 1: -READONLY You can't write.",
            "READONLY",
        ),
        ("Error running script (call to f_0a): @user_script:1: @user_script: 1: -OOM command not allowed.", "OOM"),
        ("ERR Error running script (call to f_0a): @user_script:1: a nil value", "ERR"),
        ("ERR The user executing the script can't run this command or subcommand script: 0a", "NOPERM"),
        ("ERR ACL failure in script: User u has no permissions to run the 'set' command", "NOPERM"),
        ("ERR job: -OOM is a word", "ERR"),
        ("MISCONF Redis is configured to save RDB snapshots", "MISCONF"),
    ],
)
def test_the_code_of_an_error_is_that_of_the_command_which_met_it(said: str, code: str) -> None:
    assert errors.ServerError(said).code == code


def test_the_code_of_an_error_that_a_script_met_is_found_on_every_server() -> None:
    head = "ERR Error running script (call to f_5883386fc32ad88a11521144b6aed2d6202776fb): @user_script:147:"
    for text in (f"{head} WRONGTYPE Operation against a key", f"{head} -WRONGTYPE Operation", "WRONGTYPE Operation x"):
        assert errors.ServerError(text).code == "WRONGTYPE"
    assert errors.ServerError(f"{head} attempt to index a nil value").code == "ERR"
    error = errors.RetriedInPart("7", "bull:q:p")
    assert (error.code, error.job_id, error.parent_key) == ("WRONGTYPE", "7", "bull:q:p")
    assert "bull:q:p ignores failures" in str(pickle.loads(pickle.dumps(error)))


@pytest.mark.parametrize("part", ["x", "a:", ":", "@", ":@", "a:b@@", "1:/", "ab:c ", "+", "a:/: "])
def test_a_long_text_is_looked_through_once(part: str) -> None:
    """Looked through from each of its characters on, a text of this length takes longer than any test may."""
    text = part * (60_000 // len(part))
    assert not looks_like_login(text)
    assert looks_like_login(f"{text} redis://:hunter2@h")
    assert "hunter2" not in without_login(f"{text} redis://:hunter2@h")


def test_a_shown_value_is_cut_to_120_characters() -> None:
    assert errors.shown("x" * 118) == f"'{'x' * 118}'"
    assert errors.shown("x" * 119) == f"'{'x' * 116}..."
    assert errors.shown("x" * 50, 10) == "'xxxxxx..."
