"""bull-board shows our jobs as it shows Node's: its answers field by field, and a person's clicks in a real browser."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from threading import Semaphore
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from bullmq_protocol import JobFailed, JobOptions
from bullmq_sync import Job, Queue, Worker
from tests.support import board
from tests.support.servers import Server
from tests.support.web import ask, program

pytestmark = [pytest.mark.any_server, pytest.mark.any_python, pytest.mark.node]

_STATES = ("latest", "active", "waiting", "waiting-children", "prioritized", "completed", "failed", "delayed", "paused")
_JOBS = ("1", "2", "3", "4", "5", "6", "7", "book-a", "page-a", "page-b")
_EPOCH_MS = 1_600_000_000_000
_MAIN = ("getByRole", "main")


class Boards(NamedTuple):
    """A board over three queues: two of the same jobs, made by us and by Node, and one to click in."""

    port: int
    url: str
    prefix: str

    def get(self, path: str) -> Any:
        answer = ask(self.port, "GET", f"/api{path}")
        assert answer.status == 200, answer.body
        return answer.json

    def queue(self, name: str) -> Queue[Any]:
        return Queue[Any](name, self.url, prefix=self.prefix)


@pytest.fixture(scope="module")
def boards(server: Server) -> Iterator[Boards]:
    prefix = f"board-{uuid4().hex[:8]}"
    board.make(server.url, prefix, "ours")
    board.make(server.url, prefix, "clicked")
    board.make_by_node(server.url, prefix, "node")
    with board.board(server.url, prefix, ("ours", "clicked", "node", "mail")) as port:
        yield Boards(port, server.url, prefix)


@pytest.fixture(scope="module")
def page(boards: Boards) -> Iterator[board.Page]:
    if board.browser_program() is None and not os.environ.get("CI"):
        pytest.skip("no Chromium here")
    with board.page(f"http://127.0.0.1:{boards.port}") as found:
        yield found


def alike(value: Any, queue: str, field: str = "") -> Any:
    """Return what is to be equal of an answer: no moments, no names of queues, no text of the language."""
    match value:
        case dict():
            return {name: alike(each, queue, name) for name, each in value.items()}
        case list() if field == "stacktrace":
            return ["no such address" in each for each in value]
        case list():
            found = [alike(each, queue) for each in value]
            # They stand in a set, which has no order.
            return sorted(found, key=lambda child: str(child["id"])) if field == "children" else found
        case str():
            return value.replace(queue, "QUEUE") if field in ("name", "queue", "queueName") else value
        case int() if value > _EPOCH_MS and field != "next":
            return "a moment"
        case int() if field == "delay" and value > 3_600_000:
            return "until the scheduler's next moment"
        case _:
            return value


def test_what_is_alike() -> None:
    job = {"name": "a", "timestamp": _EPOCH_MS + 1, "delay": 5, "stacktrace": ["Error: no such address"]}
    for changed in ({"delay": 6}, {"stacktrace": []}, {"stacktrace": ["other"]}, {"timestamp": 0}, {"extra": None}):
        assert alike({**job, **changed}, "q") != alike(job, "q")
    assert alike({**job, "timestamp": _EPOCH_MS + 2}, "q") == alike(job, "q")


@pytest.mark.parametrize("state", _STATES)
def test_lists_of_jobs_are_those_of_node(boards: Boards, state: str) -> None:
    ours, node = (
        next(
            alike(queue, name)
            for queue in boards.get(f"/queues?activeQueue={name}&status={state}&page=1&jobsPerPage=20")["queues"]
            if queue["name"] == name
        )
        for name in ("ours", "node")
    )
    assert ours == node
    assert ours["counts"]["completed"] == 3 and ours["counts"]["waiting-children"] == 1
    assert len(ours["jobs"]) == (11 if state == "latest" else ours["counts"][state])


@pytest.mark.parametrize("path", ["", "/flow", "/logs"])
@pytest.mark.parametrize("job", _JOBS)
def test_a_job_is_as_node_made_it(boards: Boards, job: str, path: str) -> None:
    ours, node = (alike(boards.get(f"/queues/{name}/{job}{path}"), name) for name in ("ours", "node"))
    assert ours == node and ours is not None


def test_schedulers_are_those_of_node(boards: Boards) -> None:
    found = boards.get("/job-schedulers")["schedulers"]
    ours, node = ([alike(each, name) for each in found if each["queueName"] == name] for name in ("ours", "node"))
    assert ours == node and [each["id"] for each in ours] == ["nightly"]


# --- in the browser -------------------------------------------------------------------------------------------------


def counted(page: board.Page, state: str, count: int) -> None:
    """Wait until the tab of a state has this count; one without jobs shows none."""
    label = f"{state} {count}" if count else state
    page.sees(_MAIN, ("getByRole", "link", {"name": label, "exact": True}))


def first_button(of_job: str) -> tuple[Any, ...]:
    """Return the first button of a job; they bear pictures, not words."""
    return ("locator", f"xpath=(//main//a[contains(., '{of_job}')]/following::li//button)[1]")


def tab(page: board.Page, name: str, holding: str = "") -> str:
    """Open a tab of the first job; return its text once it holds another one."""
    page.click(_MAIN, ("getByRole", "tab", {"name": name}), ("first",))
    panel = ("getByRole", "tabpanel", {"name": name})
    return page.sees(_MAIN, panel, ("filter", {"hasText": holding}), ("first",))


def confirm(page: board.Page, question: str) -> None:
    """Answer the question that the board asks first."""
    assert question in page.sees(("getByRole", "alertdialog"))
    page.click(("getByRole", "alertdialog"), ("getByRole", "button", {"name": "Confirm"}))


def test_the_browser_lists_queues_and_opens_jobs(boards: Boards, page: board.Page) -> None:
    page.open("/")
    for name in ("ours", "node"):
        assert "11 Jobs" in page.sees(_MAIN, ("getByRole", "listitem"), ("filter", {"hasText": name}), ("last",))
    page.open("/queue/ours?status=completed")
    counted(page, "COMPLETED", 3)
    page.click(_MAIN, ("getByRole", "link", {"name": "#1 works"}))
    data = tab(page, "Data", "sent")
    assert '"ada"' in data and "sent" in data
    assert page.sees(_MAIN, ("getByRole", "progressbar"), ("first",)).startswith("40")
    logs = tab(page, "Logs", "sent")
    assert logs.index("looked up") < logs.index("sent")
    assert page.call(("failures",)) == []


def test_the_browser_shows_failures_flows_and_schedulers(boards: Boards, page: board.Page) -> None:
    page.open("/queue/ours?status=failed")
    # The tab is there before its text.
    error = page.sees(_MAIN, ("getByRole", "tabpanel", {"name": "Error"}), ("filter", {"hasText": "no such address"}))
    # The user's own line comes first, as in Node's.
    assert "tests/support/board.py" in error and "ValueError: no such address" in error and "bullmq_" not in error
    page.open("/queue/ours/book-a")
    for job in ("book, waiting-children, queue ours, id book-a", "page, waiting, queue ours, id page-b"):
        page.sees(_MAIN, ("getByRole", "group", {"name": job}))
    page.open("/job-schedulers?queueName=ours")
    row = page.sees(_MAIN, ("getByRole", "row"), ("filter", {"hasText": "nightly"}), ("first",))
    assert "0 3 1 1 *" in row and "night" in row
    assert page.call(("failures",)) == []


def test_the_browser_retries_promotes_cleans_and_pauses(boards: Boards, page: board.Page) -> None:
    with boards.queue("clicked") as queue:
        page.open("/queue/clicked?status=failed")
        page.click(first_button("#4"))
        confirm(page, "retry this job")
        counted(page, "FAILED", 0)
        assert queue.get_state("4") == "waiting"

        page.open("/queue/clicked?status=delayed")
        page.click(first_button("#5"))
        confirm(page, "promote this job")
        counted(page, "DELAYED", 1)
        assert queue.get_state("5") == "waiting"

        page.open("/queue/clicked?status=completed")
        page.click(_MAIN, ("getByRole", "button", {"name": "Clean all"}))
        confirm(page, "clean all completed jobs")
        counted(page, "COMPLETED", 0)
        assert queue.get_completed_count() == 0

        for item, shown, is_paused in (("Pause", "clicked [ Paused ]", True), ("Resume", "clicked", False)):
            page.click(_MAIN, ("locator", "button[aria-haspopup=menu]"))
            page.click(("getByRole", "menuitem", {"name": item, "exact": True}))
            confirm(page, f"{item.lower()} queue processing")
            page.sees(("getByRole", "navigation"), ("getByRole", "link", {"name": shown, "exact": True}))
            assert queue.is_paused() is is_paused

        # What was retried and promoted runs in a worker of ours, and the board shows it.
        Worker[Any]("clicked", lambda job: job.name, boards.url, prefix=boards.prefix).run(until="idle")
        page.open("/queue/clicked/4")
        assert "fails" in tab(page, "Data")
        assert boards.get("/queues/clicked/4")["status"] == "completed"
    assert page.call(("failures",)) == []


def test_the_browser_shows_what_the_last_page_of_the_tutorial_says(boards: Boards, page: board.Page) -> None:
    def send(job: Job[Any]) -> str:
        if job.id == "3" and job.attempts_made < 2:
            raise ConnectionError("the mail server does not answer")
        return f"sent to {job.data['to']} at attempt {job.attempts_made + 1}"

    failures = Semaphore(0)
    worker = Worker[Any]("mail", send, boards.url, prefix=boards.prefix)
    worker.on(JobFailed, lambda notice: failures.release() if notice.job.id == "4" else None)
    with boards.queue("mail") as queue, worker:
        for _ in range(3):
            queue.add("welcome", {"to": "ada@example.org"}, JobOptions(attempts=5))
        page.open("/")
        page.click(_MAIN, ("getByText", "mail", {"exact": True}), ("first",))
        counted(page, "COMPLETED", 3)
        page.click(_MAIN, ("getByRole", "link", {"name": "COMPLETED 3", "exact": True}))
        page.click(_MAIN, ("getByRole", "link", {"name": "#3 welcome"}))
        assert "at attempt 3" in tab(page, "Data", "sent")
        assert tab(page, "Error", "ConnectionError").count("ConnectionError: the mail server does not answer") == 2
        page.open("/queue/mail?status=failed")
        queue.add("welcome", {"wrong": "field"})
        # The tab is there before its text.
        page.sees(_MAIN, ("getByRole", "tabpanel", {"name": "Error"}), ("filter", {"hasText": "KeyError: 'to'"}))
        assert failures.acquire(timeout=30)
        page.click(first_button("#4"))
        confirm(page, "retry this job")
        assert failures.acquire(timeout=30)
        page.open("/queue/mail/4")
        assert tab(page, "Error", "KeyError").count("KeyError: 'to'") == 2
    assert page.call(("failures",)) == []


def test_the_board_of_the_example_shows_every_state() -> None:
    with program("-m", "examples.board", BOARD_PORT="0") as shown:
        port = shown.port()
        found = {queue["name"]: queue["counts"] for queue in ask(port, "GET", "/api/queues").json["queues"]}
        assert found["demo"]["completed"] == 10_000
        assert all(found["letters"][state] for state in _STATES if state not in ("latest", "active", "paused"))
        assert shown.end(signal.SIGINT) == 0, shown.text


def test_the_board_of_the_tutorial_shows_the_queues_that_it_is_given(boards: Boards) -> None:
    with Queue[Any](name := f"mail-{uuid4().hex[:8]}", boards.url) as queue:
        queue.add("welcome")
        with program("-m", "examples.board", name, BOARD_PORT="0", BULLMQ_URL=boards.url) as shown:
            answer = ask(shown.port(), "GET", "/api/queues")
            assert [(each["name"], each["counts"]["waiting"]) for each in answer.json["queues"]] == [(name, 1)]
            assert shown.end(signal.SIGINT) == 0, shown.text
        queue.obliterate()
