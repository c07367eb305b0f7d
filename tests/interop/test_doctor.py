"""What `bullmq-doctor` finds where real clients of several versions share a queue."""

import pytest
import redis

from bullmq_doctor import Finding, Severity, examine, look
from bullmq_doctor.server import port_name
from bullmq_protocol import QueueKeys
from tests.support.programs import PORT, client, until, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


def of_queue(home: Server, queue: str) -> dict[str, Finding]:
    return {found.check: found for found in examine(look(home.url, [queue])) if found.where != "server"}


def is_listed(home: Server, name: str) -> bool:
    """Tell whether a connection has this name."""
    with redis.Redis.from_url(home.url) as own:
        return any(each["name"] == name for each in own.client_list())


def test_clients_and_what_they_lose_are_seen(home: Server, queue: str) -> None:
    with client("node-5.62.0", home) as old, client("node-6.7.0", home) as new, worker(PORT, home, queue):
        old.call("open", queue=queue)
        # It says that it is ready before its connections have their names.
        until(lambda: is_listed(home, port_name(QueueKeys.of(queue))), True)
        found = of_queue(home, queue)
        assert list(found) == ["versions"]
        assert "BullMQ 5.62.0 on Node opened it last, and workers of BullMQ's Python port" in found["versions"].problem
        new.call("open", queue=queue)
        assert "BullMQ 6.7.0 on Node" in of_queue(home, queue)["versions"].problem
        jobs = [{"name": "n", "data": {}, "opts": {"repeat": {"pattern": "1,1 0 1 1 *"}}}]
        old.call("add", queue=queue, jobs=jobs)
        found = of_queue(home, queue)
        for check in ("repeatables", "cron-dialects"):
            assert found[check].severity is Severity.ERROR
        assert found["cron-zone"].severity is Severity.WARNING
        # A job scheduler is none of that.
        old.call("method", queue=queue, method="obliterate", args=[], options={"force": True})
        template = {"name": "n", "data": {}}
        old.call(
            "upsert_scheduler", queue=queue, id="s", repeat={"pattern": "1 0 1 1 *", "tz": "UTC"}, template=template
        )
        assert not of_queue(home, queue).keys() & {"repeatables", "cron-dialects", "cron-zone"}
