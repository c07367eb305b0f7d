"""The wheel brings the test kit: its plugin, its entry points and the golden vectors."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bullmq_protocol.testing import vectors

pytestmark = [pytest.mark.any_python, pytest.mark.any_server]

_ROOT = Path(__file__).parents[2]
MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--wheel-dir", str(folder), str(_ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_it_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES


def test_an_installed_kit_has_its_vectors_and_its_plugin(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from importlib.metadata import distributions\n"
        "import bullmq_protocol, bullmq_pytest\n"
        "from bullmq_protocol.testing import vectors\n"
        "assert bullmq_protocol.__file__.startswith(sys.argv[1]) and bullmq_pytest.__file__.startswith(sys.argv[1])\n"
        "assert str(vectors.folder()).startswith(sys.argv[1])\n"
        "assert (vectors.folder() / 'commands.json').exists()\n"
        "(own,) = distributions(name='bullmq-protocol', path=[sys.argv[1]])\n"
        "print(*sorted((each.group, each.value) for each in own.entry_points if each.group != 'console_scripts'))\n"
        "print(sum(len(vectors.load(name)) for name in vectors.commands()))\n"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "COV"))}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, env=own
    )
    assert done.returncode == 0, done.stderr
    groups, count = done.stdout.splitlines()
    assert groups == ("('hypothesis', 'bullmq_protocol.testing.strategies') ('pytest11', 'bullmq_pytest')")
    assert int(count) == sum(len(vectors.load(name)) for name in vectors.commands())
