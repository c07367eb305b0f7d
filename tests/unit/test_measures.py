"""The measures count what they say: each on a small checkout with one case of it."""

import re
from pathlib import Path

import pytest

from tools import measures, twin

pytestmark = pytest.mark.any_python

_SHARED = [f"same = {number}" for number in range(6)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "bullmq_protocol/one.py": "class Plain:\n    def __init__(self):\n        self.first = self.second = 1\n",
        "bullmq_protocol/two.py": "class Larger:\n    def one(self): ...\n    def two(self): ...\n",
        "bullmq_protocol/reading.py": (
            "def look(command, exc):\n"
            "    if command.name == 'moveToFinished' or command.script is other:\n"
            "        return command.args[3], exc.args[0]\n"
            "    return can_merge(command), command.script is None\n"
        ),
        "bullmq_protocol/commands/reading.py": "def look(command):\n    return command.args[3]\n",
        "bullmq_anyio/net/link.py": "\n".join(["import one", *_SHARED, "left = 1", ""]),
        "bullmq_sync/net/link.py": "\n".join(["import other", "", *_SHARED, "right = 1", ""]),
        # Twins do not count.
        "bullmq_anyio/zones.py": "same = 1\n",
        "bullmq_sync/zones.py": "same = 1\n",
        "bullmq_anyio/net/room.py": "same = 1\n",
        "bullmq_sync/net/room.py": "same = 1\n",
        "lua/one.lua": (
            "call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')\n"
            "emit(KEYS[4], outcome, 'jobId', id, field, result, 'prev', 'active')\n"
            "if known.parent or known.id or known.delay then\n"
        ),
    }
    queue = (
        'class Queue:\n    """A queue of a `connection`.\n\n    Args:\n        name: Its name.\n    """\n'
        "    def __init__(self, name, connection): ...\n"
        '    def add(self, *data, delay):\n        """Add `delay`.\n\n        Args:\n            data: It.\n\n'
        '        Examples:\n            >>> queue.add(1)\n        """\n'
        "    @overload\n    def remove(self, name): ...\n    @overload\n    def remove(self, job_id, *, limit): ...\n"
        "    def remove(self): ...\n    @property\n    def size(self): ...\n"
        "    @size.setter\n    def size(self, value): ...\n"
        "    def _hidden(self, more): ...\n"
    )
    for adapter in measures.ADAPTERS:
        for module in measures.FACADE:
            files[f"{adapter}/{module}.py"] = queue if module == "queue" else ""
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_what_both_adapters_have_is_found_wherever_it_lies(root: Path) -> None:
    pairs = {pair.name: pair for pair in measures.hand_kept(root)}
    assert set(pairs) == {"link", *measures.FACADE} - set(twin.NAMES)
    assert measures.identical_lines(pairs["link"]) == 6
    assert measures.shared_places(pairs["link"]) == 1
    (root / "bullmq_sync/net/link.py").write_text("\n".join(_SHARED[:5]))
    assert sum(map(measures.shared_places, measures.hand_kept(root))) == 0


def test_classes_commands_and_scripts_are_counted(root: Path) -> None:
    sizes = list(measures.classes(root))
    assert measures.Size("bullmq_protocol/one.py Plain", 1, 2) in sizes
    # The facade, which is larger, has as many methods as users need.
    assert measures.largest_inside(sizes) == measures.Size("bullmq_protocol/two.py Larger", 2, 0)
    assert sorted(measures.command_tests(root)) == [
        "bullmq_protocol/reading.py: can_merge(command)",
        "bullmq_protocol/reading.py: command.args[3]",
        "bullmq_protocol/reading.py: command.name == 'moveToFinished'",
        "bullmq_protocol/reading.py: command.script is other",
    ]
    places = [measures.lua_places(root, each) for each in (measures.BEGINS, measures.ENDS, measures.PLAIN)]
    assert places == [["lua/one.lua:1"], ["lua/one.lua:2"], ["lua/one.lua:3"]]


def test_what_the_facade_says_is_counted_in_both_adapters(root: Path) -> None:
    assert measures.facade(root) == (8, 4, 4, 2)


def test_the_house_keeps_its_limits() -> None:
    assert sum(map(measures.identical_lines, measures.hand_kept(measures.ROOT))) < 300
    assert measures.largest_inside(measures.classes(measures.ROOT)).methods < 35
    words = measures.facade(measures.ROOT)
    assert (words.named, words.examples) == (words.parameters, words.methods)


@pytest.mark.search
def test_the_measures_of_this_checkout_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert measures.main([]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^identical lines in hand-kept pairs +\d{2,}$", printed, re.MULTILINE)
    assert re.search(r"^facade: parameters named +\d+ of \d{3}$", printed, re.MULTILINE)
    assert measures.main(["--other"]) == 2
