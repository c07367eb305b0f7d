"""A server for the tutorial: `make server`, at port 6379 or the first argument, until Ctrl-C. It keeps nothing.

It is a `redis-server` or `valkey-server` on PATH, else a program out of a wheel.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bullmq_protocol.testing.server import WHEELS, NoServer, program_of_wheel, programs_on_path


def find_program(title: str) -> tuple[str, str]:
    """Return the kind and the path of a server program; say under a title what takes a while."""
    for kind, program in programs_on_path().items():
        return kind, program
    os.environ.setdefault("BULLMQ_TEST_CACHE", str(Path(__file__).parents[1] / ".cache" / "servers"))
    for kind in reversed(tuple(WHEELS)):
        print(f"{title}: no server on PATH, getting {kind} out of a wheel", flush=True)
        found = program_of_wheel(kind)
        if found is not None:
            return kind, str(found)
    raise NoServer("no redis-server or valkey-server on PATH, and no wheel of one can be had")


def main(arguments: Sequence[str]) -> int:
    port = arguments[0] if arguments else "6379"
    with tempfile.TemporaryDirectory(prefix="server-") as folder:
        _, program = find_program("server")
        command = [program, "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
            print(f"server: redis://127.0.0.1:{port} until Ctrl-C", flush=True)
            try:
                return running.wait()
            except KeyboardInterrupt:
                return 0
            finally:
                running.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
