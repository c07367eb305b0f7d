"""Mend the append-only file of a server that was killed, as `redis-check-aof --fix` does."""

from pathlib import Path

_BEGIN = b"*1\r\n$5\r\nMULTI\r\n"
_END = b"*1\r\n$4\r\nEXEC\r\n"
_TAIL = 1 << 24


def cut_torn(folder: Path) -> int:
    """Cut off the transaction that a server was killed in the middle of; return how many bytes that was.

    Redis itself leaves the beginning of it in the file, and applies it at the start after the next:
    docs/connection-loss.md#torn.
    """
    files = [*folder.glob("appendonlydir/*.incr.aof"), *folder.glob("appendonly.aof")]
    if not files:
        return 0
    newest = max(files, key=lambda file: file.stat().st_mtime_ns)
    with newest.open("r+b") as file:
        size = newest.stat().st_size
        start = max(size - _TAIL, 0)
        file.seek(start)
        tail = file.read()
        begin = tail.rfind(_BEGIN)
        if begin < 0 or _END in tail[begin:]:
            return 0
        file.truncate(start + begin)
    return len(tail) - begin
