"""Run a command and say at its start how long it takes: `python3 tools/took.py NAME MINUTES COMMAND...`.

MINUTES is what to expect where the command never ran; after that it is what it took here the last time it succeeded,
kept in `.cache/took`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".cache" / "took"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    name, minutes, *command = arguments
    print(f"{name}: {expected(name, minutes)}", flush=True)
    began = time.monotonic()
    # Ctrl-C in the terminal reaches the command, too, which ends in its own way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = subprocess.run(command, preexec_fn=_heed_interrupts).returncode
    seconds = time.monotonic() - began
    print(f"{name}: it took {shown(seconds)}", flush=True)
    if code == 0 and not only_shown():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(f"{seconds:.0f}\n")
    return code


def only_shown() -> bool:
    """Whether make only shows what it would run (`make -n`): it runs what contains another make all the same."""
    flags, _, _ = os.environ.get("MAKEFLAGS", "").partition(" ")
    return not flags.startswith("-") and "n" in flags


def expected(name: str, minutes: str) -> str:
    """Say how long it takes."""
    try:
        return f"the last time it took {shown(float((FOLDER / name).read_text()))} here"
    except (OSError, ValueError):
        return f"takes about {minutes} minutes on two cores with nothing else to do"


def shown(seconds: float) -> str:
    """Show a duration as one reads it."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
