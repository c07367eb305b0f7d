"""Write what `bullmq_sync` has in common with `bullmq_anyio`: `python tools/twin.py [--check]`.

`bullmq_sync/NAME.py` is `bullmq_anyio/NAME.py` without `await`, by the rules of `WORDS`. What tasks and threads do each
in their own way has one name in both packages and is written by hand: `primitives.py`, `guard.py`.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = ("queue", "job", "scripts", "producers", "zones", "notices", "drive", "base", "events", "testing")

WORDS = (
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\bbullmq_anyio\b", "bullmq_sync"),
    (r"\baclose\b", "close"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\b(Stop)?Async(?=Iteration|Iterator|Transport)", r"\1"),
    (r"\bAwaitable\[(\w+(?:\[\w+\])?)\]", r"\1"),
    (r"\ban asynchronous (?=iterator|transport)", "a blocking "),
    (r"\bfor one task\b", "for one thread"),
    (r"safe to share between the tasks of one event loop", "safe to share between threads"),
)
OF_ONE = {
    "base": (
        (r"\n(?=from bullmq_sync\.drive import)", "\nfrom bullmq_sync.cancellation import Cancellable\n"),
        (r"\bclass JobBase:", "class JobBase(Cancellable):"),
    ),
    "events": (
        (
            r"in the reader's task, and is awaited where it is async\.",
            r"on the reader's thread, in a copy of\n        the context in which it was entered, or `run` called.",
        ),
        (r"The function, async or not;", "The function;"),
        (r"(-> )bool \| (?=None:)", r"\1"),
    ),
}
"""What only one module has. A thread is not cancelled as a task is, but looks whether it is to end."""
LEFT = re.compile(r"\b(async|await|anyio|aclose|Async\w+|__a\w+__)\b")


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


def main(arguments: list[str]) -> int:
    stale = []
    for name in NAMES:
        target = ROOT / "bullmq_sync" / f"{name}.py"
        text = twin(name, (ROOT / "bullmq_anyio" / f"{name}.py").read_text(encoding="utf-8"))
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
