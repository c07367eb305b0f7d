"""The ACL rules of docs/security.md are made from the command table and the packed scripts."""

import pytest

from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from tools import acl

pytestmark = pytest.mark.any_python


def test_the_page_is_not_stale(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert acl.main(["--check"]) == 0
    monkeypatch.setattr(acl, "CONNECTION", (*acl.CONNECTION, "echo"))
    assert acl.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().out


def test_every_call_of_every_script_is_known() -> None:
    for script in {**SCRIPTS, **OUR_SCRIPTS}:
        assert acl.called(script)


def test_roles_have_what_their_methods_and_rare_branches_call() -> None:
    assert {"hscan", "zrevrange", "exists", "xread"} <= set(acl.commands("producer"))
    # What a script calls by redis.pcall counts, too.
    assert {"incr", "incrby"} <= set(acl.commands("producer"))
    assert {"lpos", "bzpopmin", "lpush", "rpush"} <= set(acl.commands("worker"))
    assert "zpopmin" not in acl.commands("producer")
    assert not {"flushdb", "keys", "config", "script", "client"} & {*acl.commands("producer"), *acl.commands("worker")}


def test_every_command_is_somebodys_or_the_administrators() -> None:
    given = {name.strip() for text in acl.ROLES.values() for name in " ".join(text.split()).split(",")}
    assert given <= acl.rows().keys()
    # A user of the relay needs what docs/relay.md has.
    of_queues = {name for name, row in acl.rows().items() if row["kind"] != "relay"}
    assert of_queues - given == {
        "cleanJobsInSet",
        "drain",
        "getQueueEvents",
        "getWorkers",
        "moveJobsToWait",
        "obliterate",
        "rateLimit",
        "removeDeprecatedPriorityKey",
        "removeGlobalConcurrency",
        "removeGlobalRateLimit",
        "removeOrphanedJobs",
        "removeRateLimitKey",
        "removeRepeatable",
        "setGlobalConcurrency",
        "setGlobalRateLimit",
        "trimEvents",
    }
