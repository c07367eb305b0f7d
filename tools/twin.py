"""Write the blocking twins of what is the same text in both colours: `python tools/twin.py [--check]`.

`bullmq_sync/NAME.py` is `bullmq_anyio/NAME.py` without `await`. What differs in more than that is in `base.py` and
`drive.py` of each colour, by hand.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = ("queue", "job", "scripts", "producers", "zones")

WORDS = (
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\bbullmq_anyio\b", "bullmq_sync"),
    (r"\baclose\b", "close"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"safe to share between the tasks of one event loop", "safe to share between threads"),
)
LEFT = re.compile(r"\b(async|await|anyio|aclose|Async\w+|__a\w+__)\b")


def twin(text: str) -> str:
    """Return the blocking form, formatted; refuse what has no rule."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    left = LEFT.search(text)
    if left:
        raise SystemExit(f"tools/twin.py: no rule for {left[0]!r}")
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
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
        text = twin((ROOT / "bullmq_anyio" / f"{name}.py").read_text(encoding="utf-8"))
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
