"""The ledger: one file per process, one line per thing that happened, in the order in which it happened.

A line is a moment (milliseconds since the epoch), a word and its fields, written in one call, so that a process that
is killed leaves whole lines. A job is known by its *mark*: the name it was added with, which nothing else has.

    try <queue> <mark>                               an add is about to be sent
    ack <queue> <mark> <id>                          the server said that it is stored
    unsure <queue> <mark>                            it may be stored
    not <queue> <mark> <why>                         it is not stored
    start <queue> <id> <mark> <starts> <attempts>    a handler begins; attempts made before
    done <queue> <id> <mark>                         the server accepted the success
    failed <queue> <id> <mark> <final> <reason>      the server accepted the failed attempt; final: 1 or 0
    refused <queue> <id> <mark> <uncertain>          the server refused the report
    late <ms>                                        the process stood still for this long: stopped, or without CPU
    end                                              the process ends in good order
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BEAT_S, _LATE_MS = 0.1, 300


class Entry(NamedTuple):
    """One line. `process` is `<role>-<adapter>-<n>`, its slot the same without the number."""

    at: int
    process: str
    word: str
    fields: tuple[str, ...]

    @property
    def slot(self) -> str:
        return self.process.rpartition("-")[0]


class Ledger:
    """What one process writes."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, word: str, *fields: object) -> None:
        line = " ".join((str(now()), word, *(str(field).replace(" ", "_").replace("\n", "_") for field in fields)))
        os.write(self._file, f"{line}\n".encode())

    def watch(self) -> None:
        """Note from now on when the process stands still: a thread of its own sees it."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(_BEAT_S)
            late = round((time.monotonic() - before - _BEAT_S) * 1000)
            if late > _LATE_MS:
                self.note("late", late)


class Reader:
    """The lines of one file, as they come."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0

    def new(self) -> Iterator[Entry]:
        """Give the lines that were not given yet."""
        if not self._file.exists():
            return
        with self._file.open("rb") as opened:
            opened.seek(self._position)
            data = opened.read()
        data = data[: data.rfind(b"\n") + 1]
        self._position += len(data)
        for line in data.decode().splitlines():
            at, word, *fields = line.split(" ")
            yield Entry(int(at), self._file.stem, word, tuple(fields))


def now() -> int:
    """Return the wall clock, which all processes of the machine share, in milliseconds."""
    return time.time_ns() // 1_000_000


def read(folder: Path) -> list[Entry]:
    """Read all files, in the order of time."""
    entries = [entry for file in sorted(folder.glob("*.ledger")) for entry in Reader(file).new()]
    return sorted(entries, key=lambda entry: entry.at)
