"""The golden vectors as pages of the site, one for each command: `docs/conf.py` has them written before each build.

What a vector holds stands in the pages as HTML, which Sphinx takes as it is: parsing and indexing all of it would take
minutes.
"""

from __future__ import annotations

import html
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from bullmq_protocol.testing import vectors

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs"
TARGET = ROOT / "docs" / "vectors"
VERSIONS = (vectors.PINNED, *vectors.LATER)

Json: TypeAlias = Any

# Nothing of it is in the search: a page of numbers and ids would be found for everything.
HEAD = "---\nno-search: true\n---\n\n"


def page_of(path: str) -> str | None:
    """Return the page that shows a file or a folder of `specs/vectors`, from the root of the repository."""
    folder, _, name = path.removeprefix("specs/vectors").strip("/").rpartition("/")
    if not path.startswith("specs/vectors") or name == "schema.json":
        return None
    if folder in ("relay", "monque") or name in ("relay", "monque"):
        return f"docs/vectors/{folder or name}.md"
    return f"docs/vectors/{Path(name).stem}.md" if name.endswith(".json") else "docs/vectors/index.md"


def write(target: Path = TARGET) -> None:
    """Write all pages."""
    target.mkdir(exist_ok=True)
    texts = pages()
    for stale in {file.name for file in target.iterdir()} - texts.keys():
        (target / stale).unlink()
    for name, text in texts.items():
        file = target / name
        # Sphinx reads again what is newer.
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    rows = json.loads((SPECS / "commands.json").read_text("utf-8"))["commands"]
    table = {row["name"]: row for row in rows}
    by_command: dict[str, dict[str, Sequence[Json]]] = {}
    for version in VERSIONS:
        for command in vectors.commands(version):
            by_command.setdefault(command, {})[version] = vectors.load(command, version)
    found = {f"{command}.md": _command(command, table[command], by_command[command]) for command in by_command}
    return {
        "index.md": _index(table, by_command),
        **found,
        "relay.md": _relay(SPECS / "vectors" / "relay"),
        "monque.md": _monque(SPECS / "vectors" / "monque"),
    }


def _index(table: Mapping[str, Json], by_command: Mapping[str, Mapping[str, Sequence[Json]]]) -> str:
    count = sum(len(each) for found in by_command.values() for each in found.values())
    lines = [
        "# Golden vectors",
        "",
        f"{count:,} calls of BullMQ's scripts, each with the state before it, its reply, and the state after it.",
        "[The specification](../../specs/README.md#golden-vectors) describes the files and how to test a client or a",
        "server side with them; [the conformance run](../conformance.md#scripts) does the latter.",
        "",
        f"| Command | {' | '.join(VERSIONS)} | What it does |",
        "|---|" + "---|" * len(VERSIONS) + "---|",
    ]
    for command in table:
        if command in by_command:
            counts = [str(len(by_command[command].get(version, ()))) for version in VERSIONS]
            lines.append(f"| [{command}]({command}.md) | {' | '.join(counts)} | {table[command]['summary']} |")
    lines += ["", "Later versions have vectors for the cases in which they differ from the version before."]
    lines += ["The vectors of the [relay](relay.md) and of [Monque](monque.md) have different formats."]
    names = "\n".join([*(command for command in table if command in by_command), "relay", "monque"])
    lines += ["", f"```{{toctree}}\n:hidden:\n\n{names}\n```", ""]
    return "\n".join(lines)


def _command(name: str, row: Json, found: Mapping[str, Sequence[Json]]) -> str:
    # A script of later versions may be a plain command before.
    place = "plain-redis-commands" if row["kind"] == "plain" else name.lower()
    links = f"[Keys and arguments](../reference/commands.md#{place}), [specification](../../specs/{row['spec']})."
    parts = [f"# {name}\n", f"{row['summary']} {links}\n"]
    for version, several in found.items():
        folder = "vectors" if version == vectors.PINNED else f"vectors/{version}"
        parts += [f"## BullMQ {version}\n", f"{len(several)} vectors, as [JSON](../../specs/{folder}/{name}.json).\n"]
        parts.append(_raw(_details(each, version) for each in several))
    return HEAD + "\n".join(parts)


def _details(vector: Json, version: str) -> str:
    id = vector["id"] if version == vectors.PINNED else f"{vector['id']}-of-{version}"
    part, _, section = vector["section"].partition("#")
    cited = f"section {section} of part {part}" if section else vector["section"]
    title = f"<code>{_text(vector['id'])}</code> {_text(vector['title'])} <small>{_text(cited)}</small>"
    rows = [("KEYS", _listed(vector["call"]["keys"])), ("ARGV", _listed(vector["call"]["args"]))]
    rows.append(("Reply", _code(vector["reply"])))
    if "decoded" in vector:
        rows.append(("Decoded", _code(vector["decoded"])))
    if vector.get("inputs") is not None:
        rows.append(("Inputs", _code(vector["inputs"])))
    notes = [f"reply within {vector['reply_tolerance_ms']} ms"] if "reply_tolerance_ms" in vector else []
    notes += ["elements in any order"] if vector.get("any_order") else []
    if notes:
        rows.append(("Compared", _text(", ".join(notes))))
    body = _state(vector["start"], vector["end"]) + _table((), rows)
    return f'<details id="{_text(id)}"><summary>{title}</summary>{body}</details>'


def _state(start: Mapping[str, Json], end: Mapping[str, Json]) -> str:
    """Return the keys before and after a call; those that it changed are marked."""
    rows = []
    for key in sorted(start.keys() | end.keys()):
        before, after = start.get(key), end.get(key)
        changed = before != after
        mark = f"<strong>{_text(key)}</strong>" if changed else _text(key)
        rows.append((mark, _entry(before), _entry(after) if changed else "the same"))
    return _table(("Key", "Start", "End"), rows) if rows else "<p>The database is empty before and after.</p>"


def _entry(entry: Json) -> str:
    if entry is None:
        return "–"
    value, kind = entry["value"], entry["type"]
    if isinstance(value, dict) and kind in ("hash", "zset"):
        lines = [f"{name}: {_json(each)}" for name, each in value.items()]
    elif isinstance(value, list):
        lines = [_json(each) for each in value]
    else:
        lines = [_json(value)]
    left = f", expires in {entry['ttl_ms']} ms" if "ttl_ms" in entry else ""
    return f"<small>{kind}{left}</small><pre>{_text(_lines(lines))}</pre>"


def _relay(folder: Path) -> str:
    parts = [
        "# Vectors of the relay\n",
        "Each case begins with an empty database. [The relay](../relay.md) explains the terms.\n",
    ]
    for file in sorted(folder.glob("*.json")):
        found = json.loads(file.read_text("utf-8"))
        cases = []
        for number, case in enumerate(found["cases"], 1):
            rows = [
                (_code(_asked(step)), _code(step["reply"]) if "reply" in step else "", _code(step["changed"]))
                for step in case["steps"]
            ]
            body = _table(("Step", "Reply", "Changed keys"), rows)
            cases.append(f'<details id="case-{number}"><summary>{_text(case["title"])}</summary>{body}</details>')
        parts += [f"## BullMQ {found['bullmq']}\n", _raw(cases)]
    return HEAD + "\n".join(parts)


def _asked(step: Json) -> Json:
    return {name: value for name, value in step.items() if name not in ("reply", "changed")}


def _monque(folder: Path) -> str:
    parts = ["# Vectors of Monque\n", "[The specification](../../specs/monque.md) explains them.\n"]
    for file in sorted(folder.glob("*.json")):
        found = json.loads(file.read_text("utf-8"))
        lines = _lines(_json(each) for each in found["vectors"])
        given = f"<p>Given: {_code(found['given'])}</p>" if "given" in found else ""
        head = f"<summary>{len(found['vectors'])} vectors of Monque {_text(found['monque'])}</summary>"
        parts += [f"## {file.stem}\n", _raw([f"<details>{head}{given}<pre>{_text(lines)}</pre></details>"])]
    return HEAD + "\n".join(parts)


def _raw(blocks: Iterable[str]) -> str:
    inner = "\n".join(blocks)
    return f'```{{raw}} html\n<div class="vectors">\n{inner}\n</div>\n```\n'


def _listed(values: Sequence[Json]) -> str:
    items = "".join(f"<li>{_code(_readable(each))}</li>" for each in values)
    return f"<ol>{items}</ol>" if items else "none"


def _readable(value: Json) -> Json:
    """Return an argument in MessagePack as what is in it."""
    return {"msgpack": value["msgpack"]} if isinstance(value, dict) and "msgpack" in value else value


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first = f"<thead><tr>{''.join(f'<th>{each}</th>' for each in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{each}</td>' for each in row)}</tr>" for row in rows)
    return f'<div class="table-wrapper"><table>{first}<tbody>{body}</tbody></table></div>'


def _code(value: Json) -> str:
    return f"<code>{_text(_json(value))}</code>"


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _text(value: str) -> str:
    return html.escape(value, quote=False)


def link(page: Path, target: str) -> str | None:
    """Return where a link of a page to the vectors leads on the site, None for any other link.

    The pages of the vectors themselves link to the files.
    """
    folder = page.parent.relative_to(ROOT).as_posix()
    found = page_of(posixpath.normpath(posixpath.join(folder, target)))
    return None if found is None or page.parent == TARGET else posixpath.relpath(found, folder)
