"""Write `docs/errors.md` from the rules in `bullmq_protocol/model/categories.py`, `docs/troubleshooting.md` from
`tools/troubles.py`.

Usage: python tools/error_table.py [--check]
"""

import errno
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bullmq_protocol.model.categories import (
    NAMESAKES,
    RULE_GROUPS,
    TRANSIENT_ERRNO,
    TRANSIENT_SQLSTATE_CLASSES,
    TRANSIENT_STATUS,
    Rule,
    Verdict,
)
from tools.troubles import ROOTS, TROUBLES

TARGET = Path(__file__).parents[1] / "docs" / "errors.md"
TROUBLESHOOTING = TARGET.with_name("troubleshooting.md")

HEAD = """\
<!-- Written by tools/error_table.py from bullmq_protocol/model/categories.py; edit that. -->

# Transient and permanent errors

When a handler raises, its exception is **transient** (a retry may help) or **permanent** (it cannot):

- With `RetryPolicy.CATEGORISING`, a permanent error fails the job at once, however many attempts are left. With
  `RetryPolicy.BULLMQ`, the default, every error is retried while attempts are left, as on Node.
- The log field `category` and the label `reason` of `bullmq_jobs_failed_total` name the category under either policy.

The first of these that applies decides:

1. **What you raised.** A `TransientError` or `PermanentError`, from the handler or anywhere in the chain of causes.
   `UnrecoverableError` is permanent.
2. **The type**, by the tables below. A rule applies to the class and its subclasses; the most derived class that has a
   rule wins. Packages are recognised by name, so none of them needs to be installed.
3. **The content**: attributes such as an HTTP status.
4. **The cause**: the exception that this one was raised from, or that was being handled when it was raised, outermost
   first. SQLAlchemy's `orig` and urllib's `reason` count as causes.
5. Otherwise it is **permanent**.

An exception group is transient if each exception in it is.
"""


TROUBLE_HEAD = """\
<!-- Written by tools/error_table.py from tools/troubles.py; edit that. -->

# Troubleshooting by message

Search this page for your message, or for a part of it: it says why the error occurs and what to do. The ids and values
in your message will differ from these examples.

If you have no message, [`bullmq-doctor`](doctor.md) finds problems in a server and its queues, and
[when the connection is lost](connection-loss.md) explains what a worker logs.
"""


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or tell which is stale; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for target, text in ((TARGET, page()), (TROUBLESHOOTING, troubleshooting())):
        if not arguments:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            print(
                f"tools/error_table.py: docs/{target.name} is stale, run python tools/error_table.py", file=sys.stderr
            )
            stale = 1
    return stale


def troubleshooting() -> str:
    """Return the text of the page that goes by messages."""
    lines = ["## Messages", "", "| Message | Error |", "|---|---|"]
    for kind, trouble in TROUBLES.items():
        lines.append(f"| {_cell(str(trouble.example))} | [`{kind.__name__}`](#{kind.__name__.lower()}) |")
    for kind, trouble in TROUBLES.items():
        lines += ["", f"## {kind.__name__}", "", "```text", str(trouble.example), "```", ""]
        lines += [f"**Why.** {trouble.why}", "", f"**What to do.** {trouble.do}"]
        if kind.__doc__ and kind.__bases__[0] in ROOTS and kind.__bases__[0].__name__ != "BullMQError":
            lines += ["", f"It is a [`{kind.__bases__[0].__name__}`](#the-families)."]
    lines += ["", "## The families", "", "| Error | |", "|---|---|"]
    lines += [f"| `{kind.__name__}` | {said} |" for kind, said in ROOTS.items()]
    return TROUBLE_HEAD + "\n" + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    escaped = text.replace("|", r"\|").replace("<", "&lt;")
    return f"`{escaped}`" if "`" not in text else f"`` {escaped} ``"


def page() -> str:
    """Return the text of the page."""
    return HEAD + "\n" + "\n".join([*_by_shape(), *_by_type()]) + "\n"


def _by_shape() -> Iterator[str]:
    statuses = ", ".join(map(str, TRANSIENT_STATUS))
    names = ", ".join(f"`{errno.errorcode[number]}`" for number in sorted(TRANSIENT_ERRNO))
    classes = ", ".join(f"`{each}`" for each in sorted(TRANSIENT_SQLSTATE_CLASSES))
    yield "## By content"
    yield ""
    yield "| Content | Transient | Permanent |"
    yield "|---|---|---|"
    yield (
        "| HTTP status: `response.status_code`, `response.status`, `status`, `status_code`, `code` | "
        f"{statuses}, 500 to 599; a `Retry-After` header is the delay of the retry | any other from 400 on |"
    )
    yield f"| SQLSTATE: `sqlstate`, `pgcode` | classes {classes} | any other |"
    yield f"| `errno` of an `OSError` | {names} | any other |"
    yield ""


def _by_type() -> Iterator[str]:
    yield "## By type"
    for group, rules in RULE_GROUPS.items():
        yield ""
        yield f"### {group}"
        yield ""
        yield "| Class | Category |"
        yield "|---|---|"
        for name, rule in rules.items():
            yield f"| `{name}` | {_said(rule)} |"
    yield ""
    yield "Packages whose exceptions have the same names as another's are treated the same way: " + (
        ", ".join(f"`{each}` as `{known}`" for each, known in NAMESAKES.items()) + "."
    )
    yield "A class is listed under its package, not its module: `psycopg.errors.OperationalError` is listed as"
    yield "`psycopg.OperationalError`. The package of confluent-kafka's exceptions is `cimpl`."


def _said(rule: Rule) -> str:
    return rule.category.value if isinstance(rule, Verdict) else rule.says


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
