"""Write what `bullmq_sync` has in common with `bullmq_anyio`, `monque_sync` with `monque_anyio`, and
`bullmq_outbox.sync` with `bullmq_outbox.aio`: `python tools/twin.py [--check]`.

`bullmq_sync/NAME.py` is `bullmq_anyio/NAME.py` without `await`, by the rules of `WORDS`. What tasks and threads do each
in their own way has one name in both packages and is not generated: `primitives.py`, `callbacks.py`, `net/link.py`,
`net/dialling.py`, `net/sharing.py`.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = (
    "queue",
    "job",
    "generics",
    "router",
    "current",
    "scripts",
    "producers",
    "zones",
    "notices",
    "guard",
    "clocks",
    "drive",
    "base",
    "events",
    "testing/__init__",
    "testing/conformance",
    "testing/queues",
    "testing/handlers",
    "worker",
    "manual",
    "worker_ids",
    "runner",
    "outbox",
    "relay",
    "subscribers",
    "transports",
    "signals",
    "driving/audience",
    "driving/base",
    "driving/connections",
    "driving/contact_base",
    "driving/processing",
    "driving/shared",
    "net/closable",
    "net/room",
    "net/resp",
    "net/sockets",
    "net/skeleton",
    "net/answer",
    "net/connection",
    "net/sentinel",
    "net/cluster",
    "net/redis_client",
)

WORDS = (
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\bbullmq_anyio\b", "bullmq_sync"),
    (r"\bmonque_anyio\b", "monque_sync"),
    (r"\bbullmq_outbox\.aio\b", "bullmq_outbox.sync"),
    (r"\baclose\b", "close"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\b(Stop)?Async(?=Iteration|Iterator|Transport|RecordingTransport)", r"\1"),
    (r"\bAwaitable\[(\w+(?:\[\w+\])?)\]", r"\1"),
    (r"\ban asynchronous (?=iterator|transport)", "a blocking "),
    (r"\bLink, SocketLink\b", "Link"),
    (r"\bSocketLink\b", "Link"),
    (r"\bfor one task\b", "for one thread"),
    (r"safe to share between the tasks of one event loop", "safe to share between threads"),
    (r"\ball\s+tasks of one event loop may share it", "all threads may share it"),
)
_OF_THREADS = ((r"\b(_?)tasks\b", r"\1threads"),)
OTHERS = (
    ("bullmq_anyio/zones", "monque_anyio/zones"),
    ("bullmq_anyio/zones", "monque_sync/zones"),
    ("bullmq_anyio/clocks", "monque_anyio/clocks"),
    ("bullmq_anyio/clocks", "monque_sync/clocks"),
    ("monque_anyio/perform", "monque_anyio/blocking"),
    ("monque_anyio/perform", "monque_sync/perform"),
    ("monque_anyio/monque", "monque_sync/monque"),
    ("bullmq_outbox/aio/relay", "bullmq_outbox/sync/relay"),
    ("bullmq_outbox/aio/psycopg", "bullmq_outbox/sync/psycopg"),
    ("bullmq_outbox/aio/sqlalchemy", "bullmq_outbox/sync/sqlalchemy"),
)
"""Further pairs: of the second system, whose adapters depend on pymongo alone, and of the outbox."""
COPIES = (("bullmq_anyio/apart", "monque_anyio/apart"),)
"""What one adapter of the second system has as it is."""
OF_ONE = {
    "bullmq_outbox/aio/relay": ((r", without waiting for that\.", ". Any thread may call it."),),
    "bullmq_outbox/aio/psycopg": (
        (r"on asyncio, by psycopg", "on threads, by psycopg"),
        (r"outbox-psycopg,anyio", "outbox-psycopg,sync"),
        (r"\bAwaitable\[(psycopg\.AsyncConnection\[Any\])\]", r"\1"),
        (r"\bAsyncConnection\b", "Connection"),
    ),
    "bullmq_outbox/aio/sqlalchemy": (
        (r"on asyncio by SQLAlchemy", "on threads by SQLAlchemy"),
        (r"outbox-sqlalchemy,anyio", "outbox-sqlalchemy,sync"),
        (r"from sqlalchemy import text\n", "from sqlalchemy import Connection, Engine, text\n"),
        (r"from sqlalchemy\.ext\.asyncio import [^\n]*\n", ""),
        (r"must be an AsyncEngine", "must be an Engine"),
        (r"\bAsync(?=Engine|Connection\b)", ""),
    ),
    "monque_anyio/monque": (
        (
            r"An `AsyncDatabase` on asyncio[^.]*?trio always that\.",
            "A `Database`; any thread may call the scheduler.",
        ),
        (
            r"Handlers that run longer are not interrupted before the end of `with`\.",
            "Handlers that run longer go on.",
        ),
        (
            r"at the end it stops and releases the jobs\s+that are still running\. Without that it can add",
            "at the end it\n    stops. Without that it can add",
        ),
        (r"An async function of the `Job`", "A function of the `Job`"),
        (r"The function, async or not\.", "The function."),
    ),
    "router": (
        (r"is_async=True", "is_async=False"),
        (r"\bAn async function\b", "A function"),
        (
            r"The function is then cancelled, as by[^\n]*\n[^\n]*`TimeoutError`\.",
            "Then `job.cancelled` is set, and nothing else happens: the function must look. What it does decides.",
        ),
        (r"\n +TimeoutError: The function took longer than its `timeout`\.", ""),
    ),
    "current": (
        (
            r"Tasks that a processor starts, and threads[^.]*\.to_thread`, `anyio\.to_thread`\), have\n[^.]*\.",
            "Threads that it starts have the same one if they run in a copy of its context (`contextvars`).",
        ),
    ),
    "driving/audience": _OF_THREADS,
    "driving/base": _OF_THREADS,
    "driving/contact_base": _OF_THREADS,
    "driving/shared": (
        (r"\bWorkerTasks\b", "WorkerThreads"),
        (r"\bdriving\.tasks\b", "driving.threads"),
        *_OF_THREADS,
    ),
    "base": (
        (r"\n(?=from bullmq_sync\.drive import)", "\nfrom bullmq_sync.cancellation import Cancellable\n"),
        (r"\bclass JobBase\(Defaulted\):", "class JobBase(Cancellable, Defaulted):"),
    ),
    "events": (
        (
            r"apart from the reader and[^\"]*? awaited if it is\s+async\.",
            r"on the reader's thread, in a copy of\n        the context in which it was entered, or `run` called.",
        ),
        (r"The function, async or not, which", "The function, which"),
        (r"(-> )bool \| (?=None:)", r"\1"),
    ),
    "testing/__init__": ((r"on asyncio and trio", "on threads"),),
    "testing/queues": ((r"an async function of the `Job`", "a function of the `Job`"),),
    "testing/handlers": ((r"an async function of the `Job`", "a function of the `Job`"),),
    "net/cluster": (
        (r"for asyncio and trio: each queue", "for threads: each queue"),
        (r"commands; cancelling a call on it drops it", "commands, which another thread can interrupt"),
    ),
    "net/connection": (
        (r"for asyncio and trio: one socket that any number of tasks share", "for threads: one socket that they share"),
        (r"It owns no task and no task group[^.]*\.", "It has no thread of its own."),
        (r"for any number of tasks\. It", "for any number of threads. It"),
        (
            r"(?<=themselves, and not after a time-out\.)",
            " The child of a fork makes a connection of its own.",
        ),
        (r"commands; cancelling a call on it drops it", "commands, which another thread can interrupt"),
        (
            r"`UsageError` in another event loop[^`]*`dedicated`\.",
            "`UsageError` for a blocking command without `dedicated`.",
        ),
    ),
    "worker": (
        (r", so you can create it before an event loop runs\.", "; any thread may call its methods."),
        (r"An async function that takes the `Job`", "A function that takes the `Job`"),
        (r"Async functions that take the job and", "Functions that take the job and"),
        (r"runs in the job's own\s+task\. None by", r"runs on the job's thread.\n            None by"),
        (r"\ban async context manager\b", "a context manager"),
        (r"\bAbstractAsync(?=ContextManager)", "Abstract"),
        (
            r"(becomes its failure\.) (?=None)",
            r"\1 Nothing can stop its thread: a long one must check `job.cancelled`.\n            ",
        ),
        (r"A function, async or not, for backoff types", "A function for backoff types"),
        (r"is_async=True", "is_async=False"),
        (
            r"If it is cancelled, it cancels the processors,[^.]*\.",
            "An interrupt from the keyboard returns the running jobs to the queue and is raised again.",
        ),
        (r"\bthey are cancelled and returned", "they are returned"),
        (
            r"A task that continues although it was\s+cancelled cannot be stopped:[^\"]*?seconds\.",
            r"A processor that is still running then\n        continues, and its result is refused.",
        ),
        (r"(\) -> )bool \| (?=None:)", r"\1"),
        (r"return (?=self\._driver\.leave)", ""),
        (r"(?<=with each notice of one kind)\.", ", on the thread where it came up."),
        (r"An async function runs in its own task, [^.]*\.\s+(Exceptions from the function)\s+", r"\1 "),
        (r"The function, async or not, which", "The function, which"),
    ),
}
"""What only one module has. A thread is not cancelled as a task is, but looks whether it is to end."""
LEFT = re.compile(r"\b(async|await|anyio|aclose|Async\w+|__a(?!ll__)\w+__)\b")


def twin(name: str, text: str) -> str:
    """Return the blocking form, formatted; refuse what has no rule, and a rule that finds nothing in its module."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    for pattern, replacement in OF_ONE.get(name, ()):
        text, found = re.subn(pattern, replacement, text)
        if not found:
            raise SystemExit(f"tools/twin.py: {name}.py has nothing for {pattern!r}")
    left = LEFT.search(text)
    if left:
        raise SystemExit(f"tools/twin.py: no rule for {left[0]!r}")
    for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(ROOT / "bullmq_sync" / "twin.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


def _text(name: str) -> str:
    return (ROOT / f"{name}.py").read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    stale = []
    pairs = (
        *((name, f"bullmq_anyio/{name}", f"bullmq_sync/{name}") for name in NAMES),
        *((a, a, b) for a, b in OTHERS),
    )
    texts = [(target, twin(name, _text(source))) for name, source, target in pairs]
    texts += [(target, _text(source)) for source, target in COPIES]
    for name, text in texts:
        target = ROOT / f"{name}.py"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            stale.append(str(target.relative_to(ROOT)))
            if "--check" not in arguments:
                target.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"tools/twin.py: run it, stale: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
