"""The page about another version of BullMQ: of small packages made here, and of two pins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle import scripts
from tests.oracle.calls import Call
from tests.support import servers
from tests.support.servers import Server
from tools import follow
from tools.follow import Differing, Package

KEPT = "return redis.call('INCR', KEYS[1])"
ADD = "return redis.call('RPUSH', KEYS[1], ARGV[1])"
ADD_LEFT = "return redis.call('LPUSH', KEYS[1], ARGV[1])"
SECRET = "error('a text that nobody may see')"
OLD = {"count": (1, KEPT), "push": (1, ADD), "wide": (1, f"{KEPT} --"), "reword": (1, KEPT), "old": (1, KEPT)}
NEW = {
    "count": (1, KEPT),
    "push": (1, ADD_LEFT),
    "wide": (2, f"{KEPT} -- with a key that nobody reads"),
    "reword": (1, f"{KEPT} -- and no more"),
    "recent": (3, SECRET),
}
PUSHED = [("SET", "n", "1"), Call("count", ("n",), ()), Call("push", ("l",), ("a",)), Call("push", ("l",), ("b",))]
CASES = [
    ("two pushes", PUSHED),
    ("one push", PUSHED[:3]),
    ("same", [Call("count", ("n",), ())]),
    ("reworded", [Call("reword", ("n",), ())]),
    ("wider", [Call("wide", ("n",), ())]),
    ("gone", [Call("push", ("l",), ("a",)), Call("old", ("n",), ())]),
]

# Speaks to the server without any client, as there is none in these packages.
SCENARIO = """
const { scripts } = require("bullmq");
const socket = require("net").connect(Number(process.argv[2]), "127.0.0.1");
const send = (...words) => socket.write(
  Buffer.concat([Buffer.from(`*${words.length}\\r\\n`), ...words.flatMap((word) => {
    const data = Buffer.from(word);
    return [Buffer.from(`$${data.length}\\r\\n`), data, Buffer.from("\\r\\n")];
  })]));
const map = Buffer.from([0x81, 0xa1, 0x61, 1]);
const packed = (n) => Buffer.from([0x90 + n, ...Array(n).fill(1)]);
const sha1 = (text) => require("crypto").createHash("sha1").update(text).digest("hex");
for (const { name, keys, content } of Object.values(scripts)) {
  const all = Array(keys).fill("bull:k");
  if (name === "push") send("EVAL", content, String(keys), ...all, packed(scripts.recent ? 3 : 2));
  if (name === "push") send("EVALSHA", sha1(content), String(keys), ...all, "\\u0000\\"\\\\\\n", "more");
  if (name === "wide") send("EVALSHA", sha1(content), String(keys), ...all, map);
}
send("PING");
socket.on("data", (data) => data.includes("PONG") && socket.end());
"""


def package(folder: Path, version: str, texts: dict[str, tuple[int, str]]) -> Package:
    """Write a package as npm would, and read it."""
    home = folder / version / "node_modules" / "bullmq"
    (home / "scripts").mkdir(parents=True)
    found = {name: {"name": name, "keys": keys, "content": text} for name, (keys, text) in texts.items()}
    (home / "package.json").write_text(json.dumps({"name": "bullmq", "version": version, "main": "index.js"}))
    (home / "scripts" / "index.js").write_text(f"module.exports = {json.dumps(found)};")
    (home / "index.js").write_text('exports.scripts = require("./scripts");')
    return follow.read(version, home.parent)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Package, Package]:
    folder = tmp_path_factory.mktemp("packages")
    return package(folder, "7.0.0", OLD), package(folder, "7.1.0", NEW)


@pytest.fixture(scope="module")
def home() -> Iterator[Server]:
    with servers.start() as started:
        yield started


def test_cases_of_changed_scripts_are_compared(both: tuple[Package, Package], home: Server) -> None:
    found = follow.compared(*both, home, cases=CASES, vectors=CASES[1:2])
    assert found.cases == {"push": Differing(2, ("two pushes",)), "reword": Differing(1, ())}
    assert found.vectors == {"push": Differing(1, ())}
    assert found.not_asked == {"wide"}


def test_calls_are_seen_on_the_wire(both: tuple[Package, Package], home: Server, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.js"
    scenario.write_text(SCENARIO)
    before, after = (follow.observed(each, home, scenario) for each in both)
    assert before["push"] == follow.Shapes(frozenset({1, 2}), {1: "[2]"})
    assert before["wide"] == follow.Shapes(frozenset({1}), {1: "a"})
    assert list(follow.signatures(*both, (before, after))) == [
        "| `push` | ARGV[1] -[2] +[3] |",
        "| `wide` | keys 1 → 2 |",
    ]
    fewer = {**after, "push": follow.Shapes(frozenset({2}), after["push"].packed)}
    assert "| `push` | arguments 1 or 2 → 2; ARGV[1] -[2] +[3] |" in follow.signatures(*both, (before, fewer))


def test_a_scenario_that_breaks_off_ends_the_run(both: tuple[Package, Package], home: Server, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.js"
    scenario.write_text("process.exit(3)")
    with pytest.raises(SystemExit, match=r"bullmq 7\.0\.0 cannot be called"):
        follow.observed(both[0], home, scenario)


def test_the_page(both: tuple[Package, Package], home: Server) -> None:
    found = follow.compared(*both, home, cases=CASES[:-2], vectors=[])
    lines = list(follow.page(*both, ({"push": follow.Shapes(frozenset({1}), {})},) * 2, found))
    assert lines[0] == "# BullMQ 7.1.0 after 7.0.0"
    assert all(f"| {pin} | 0 of {len(scripts.recorded_keys(pin))} |" in lines for pin in scripts.RECORDS)
    for line in (
        "- added: `recent-3`",
        "- gone: `old-1`",
        "- changed (by SHA-256): `push`, `reword`, `wide`",
        "| `wide` | keys 1 → 2 |",
        "Arguments not seen: `reword`, `wide`",
        "| `push` | 1 of 2 | 0 of 0 | two pushes |",
        "| `reword` | 0 of 1 | 0 of 0 | - |",
        "Changed, and no case asks: `wide`",
    ):
        assert line in lines
    assert lines[-1] == (
        "follow: bullmq 7.1.0 after 7.0.0: 1 scripts added, 1 gone, 3 changed, 1 signatures changed, "
        "1 cases and 0 vectors differ"
    )
    assert not any("redis.call" in line or "nobody may see" in line for line in lines)


def test_versions_are_ordered_and_bases_chosen() -> None:
    versions = ["6.10.0", "6.7.0", "6.7.0-beta.1", "5.81.5", "5.62.0", "5.9.1"]
    assert sorted(versions, key=follow.order) == versions[::-1]
    assert [follow.base_of(version) for version in ("5.61.0", "5.81.5", "5.100.0", "6.7.0", "6.8.0")] == [
        "5.62.0",
        "5.62.0",
        "5.81.5",
        "5.81.5",
        "6.7.0",
    ]


def test_a_version_is_no_word_of_npm(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("latest", "6.7.0 ioredis", "file:x", "6.7"):
        with pytest.raises(SystemExit):
            follow.main([wrong])
        assert "is no version" in capsys.readouterr().err


def test_two_pins(home: Server) -> None:
    """What specs/06 says of them: see its sections 2.1 and 2.3."""
    old, new = (follow.read(version, follow.installed(version)) for version in ("5.62.0", "6.7.0"))
    seen = [follow.observed(each, home) for each in (old, new)]
    rows = list(follow.signatures(old, new, seen))
    assert "| `moveStalledJobsToWait` | keys 8 → 9 |" in rows
    assert "| `pause` | arguments 1 → 2 |" in rows
    assert any(row.startswith("| `moveToDelayed` | keys 8 → 11; arguments 7 → 9") for row in rows)
    assert any("`addStandardJob` | ARGV[1] -[9] +[10]" in row for row in rows)


def test_cases_of_the_pins_up_to_a_version_are_run() -> None:
    later, earlier = ([tuple(steps) for _, steps in follow.cases_of(version)] for version in ("6.7.0", "5.62.0"))
    assert set(earlier) < set(later)
    assert len(set(later)) == len(later)
    assert "06#11.2: moved by a delay" in {name for name, _ in follow.cases_of("6.7.0")}
