"""The server on DocumentDB leaves nothing behind, not even where its starter is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support import mongo_servers

_ROOT = Path(__file__).parents[2]
_LIMIT_S = 30


def test_postgres_ends_with_its_starter(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.documentdb", str(mongo_servers.DOCUMENTDB), str(tmp_path)]
    starter = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdout is not None and starter.stdin is not None
    assert int(starter.stdout.readline()) > 0
    data = mongo_servers.DOCUMENTDB / "srv" / tmp_path.name
    postgres = int((data / "data" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postgres, 0)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdin.close()
    starter.stdout.close()
    limit = time.monotonic() + _LIMIT_S
    while is_running(postgres):
        assert time.monotonic() < limit, "PostgreSQL goes on without its starter"
        time.sleep(0.02)
    subprocess.run(["rm", "-rf", "--one-file-system", str(data)], check=True)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
