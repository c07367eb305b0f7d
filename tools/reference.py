"""Write `docs/reference/` from `specs/commands.json` and `specs/schemas/`: `python tools/reference.py [--check]`."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs"
TARGET = ROOT / "docs" / "reference"
SPEC_LINK = "../../specs"

HEAD = "<!-- Written by tools/reference.py from specs/; edit those. -->\n\n"
KINDS = {
    "script": "script",
    "later": "script of later versions",
    "ours": "script of ours",
    "relay": "relay",
    "plain": "plain command",
}
REPEAT = {
    "safe": "safe: idempotent",
    "guarded": "guarded: a second run is refused",
    "unsafe": "unsafe: a second run takes effect twice",
}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or tell which is stale; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = []
    for name, text in pages().items():
        page = TARGET / name
        if arguments:
            if not page.exists() or page.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            TARGET.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"tools/reference.py: docs/reference/{name} is stale, run python tools/reference.py", file=sys.stderr)
    return 1 if stale else 0


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    table = json.loads((SPECS / "commands.json").read_text(encoding="utf-8"))
    schemas = {
        name: json.loads((SPECS / "schemas" / f"{name}.json").read_text(encoding="utf-8")) for name in ("job", "events")
    }
    return {
        "commands.md": HEAD + "\n".join(_commands(table)) + "\n",
        "job.md": HEAD + "\n".join(_job(schemas["job"])) + "\n",
        "events.md": HEAD + "\n".join(_events(schemas["events"], table)) + "\n",
    }


def _commands(table: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Commands of BullMQ {table['bullmq']}"
    yield ""
    yield (
        "`<B>` is the base prefix, `<prefix>:<queue>:`. A negative reply is raised as the class of "
        "`bullmq_protocol.errors` beside it. *Since* is the first of the releases "
        f"{', '.join(table['versions_looked_at'])} from which on there is a script of this name; with this number of "
        "keys from the version in brackets."
    )
    yield ""
    yield from _table(
        ("Code", "Error", "Meaning", "Message of BullMQ"),
        ((c["code"], f"`{c['error']}`", c["meaning"], f"`{c['message']}`") for c in table["codes"]),
    )
    errors = {each["code"]: each["error"] for each in table["codes"]}
    plain = [row for row in table["commands"] if row["kind"] == "plain"]
    yield "## All commands"
    yield ""
    yield f"[Vectors]({SPEC_LINK}/vectors) are calls of a script with what they meet and leave."
    yield ""
    yield from _table(
        ("Command", "What it does", "Kind", "Since", "Repeat", "Cost", "Keys", "Vectors"),
        (
            (
                f"[{row['name']}](#{row['name'].lower()})" if row["kind"] != "plain" else _linked(row),
                row["summary"],
                KINDS[row["kind"]],
                row["since"] or "",
                row["repeat"],
                row["complexity"],
                len(row["keys"]),
                _vectors(row),
            )
            for row in table["commands"]
        ),
    )
    yield "## Scripts"
    yield ""
    yield from _scripts(table, "script", errors)
    yield "## Scripts of later versions"
    yield ""
    yield "BullMQ 5.62.0 has none of these; they go with every profile."
    yield ""
    yield from _scripts(table, "later", errors)
    yield "## Scripts of ours"
    yield ""
    yield "Several jobs in one call; BullMQ has none of these."
    yield ""
    yield from _scripts(table, "ours", errors)
    yield "## Commands of the relay"
    yield ""
    yield "BullMQ has them since 6.4.0, beside the queues ([relay.md](../relay.md))."
    yield ""
    yield "`<R>` is `<prefix>::relay:{<namespace>}:`."
    yield ""
    yield from _scripts(table, "relay", errors)
    yield "## Plain Redis commands"
    yield ""
    yield from _table(
        ("Name", "Redis", "Keys", "Arguments", "Reply", "Repeat", "Builder"),
        (
            (
                _linked(row),
                ("MULTI: " if row.get("transaction") else "") + ", ".join(f"`{name}`" for name in row["redis"]),
                _code(key["key"] for key in row["keys"]),
                " ".join(f"`{a['fixed']}`" if "fixed" in a else f"*{a['name']}*" for a in row["arguments"])
                + (f" ({row['note']})" if "note" in row else ""),
                "; ".join(reply["meaning"] for reply in row["replies"]),
                row["repeat"],
                _code(row["builders"]),
            )
            for row in plain
        ),
    )


def _scripts(table: Mapping[str, Any], kind: str, errors: Mapping[int, str]) -> Iterator[str]:
    for row in table["commands"]:
        if row["kind"] == kind:
            yield from _script(row, errors)


def _script(row: Mapping[str, Any], errors: Mapping[int, str]) -> Iterator[str]:
    yield f"### {row['name']}"
    yield ""
    links = f"[Specification]({SPEC_LINK}/{row['spec']})."
    if vectors := _vectors(row):
        links = f"{links[:-1]}, {vectors}."
    yield f"{row['summary']} {links}"
    yield ""
    note = f" ({row['repeat_note']})" if "repeat_note" in row else ""
    since = row["since"]
    if since is not None and row["keys_since"] != since:
        since += f" ({row['keys_since']})"
    facts = [
        ("Builder", _code(row["builders"])),
        ("Repeat", REPEAT[row["repeat"]] + note),
        ("Cost", row["complexity"]),
        ("Events", _code(row["events"]) or "none"),
        ("Since", since),
        ("Until", row.get("until")),
    ]
    yield from (f"- {name}: {value}" for name, value in facts if value is not None)
    yield from map(_change, row.get("changes", ()))
    yield ""
    yield from _table(
        ("KEYS", "Key", "Type"),
        (
            (number, f"`{key['key']}`", key["type"] + (", not read" if key.get("unused") else ""))
            for number, key in enumerate(row["keys"], 1)
        ),
    )
    if row["arguments"]:
        yield from _table(("ARGV", "What", "Encoding", "Values"), _arguments(row["arguments"]))
    yield from _table(("Reply", "Meaning"), _replies(row, errors))


def _vectors(row: Mapping[str, Any]) -> str:
    """Return a link to the vectors of a command, of the first version that has some; nothing without any."""
    folder = SPECS / "vectors"
    files = [place / f"{row['name']}.json" for place in (folder, *sorted(folder.glob("[0-9]*")))]
    found = next((file for file in files if file.exists()), None)
    if row["kind"] == "relay":
        found = folder / "relay" / "6.7.0.json"
    return "" if found is None else f"[vectors]({SPEC_LINK}/{found.relative_to(SPECS).as_posix()})"


def _change(change: Mapping[str, Any]) -> str:
    parts = [f"{name} {_code(change[name.lower()])}" for name in ("KEYS", "arguments") if name.lower() in change]
    return f"- Since {change['since']}: {'; '.join([*parts, *([change['note']] if 'note' in change else [])])}"


def _arguments(arguments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for number, argument in enumerate(arguments, 1):
        place = f"{number} ..." if argument.get("rest") else number
        yield place, argument["name"], _encoding(argument), _values(argument)
        for at, field in enumerate(argument.get("items", ()), 1):
            yield from _fields(f"[{at}] ", field)
        for field in argument.get("fields", ()):
            yield from _fields("", field)


def _fields(before: str, field: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    optional = "or nil" if field.get("optional") else ""
    yield (
        "",
        f"{before}`{field['name']}`",
        _encoding({**field, "encoding": field["type"]}),
        ", ".join(part for part in (optional, _values(field)) if part),
    )
    for inner in field.get("fields", ()):
        yield from _fields(f"{before}`{field['name']}`.", inner)


def _encoding(argument: Mapping[str, Any]) -> str:
    unit = f", {argument['unit']}" if "unit" in argument else ""
    return argument["encoding"] + unit + (", not read" if argument.get("unused") else "")


def _values(argument: Mapping[str, Any]) -> str:
    parts = [_code(value or "(empty)" for value in argument.get("values", ()))]
    parts += [f"`{value}`: {meaning}" for value, meaning in argument.get("values_special", {}).items()]
    if "empty" in argument:
        parts.append(f"empty: {argument['empty']}")
    parts += [argument[word] for word in ("items_rest", "note") if word in argument]
    if argument.get("optional") and "encoding" in argument:
        parts.append("may be left out")
    return "; ".join(part for part in parts if part)


def _replies(row: Mapping[str, Any], errors: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for reply in row["replies"]:
        yield f"`{_shape(reply['schema'])}`", reply["meaning"]
    for error in row["errors"]:
        if isinstance(error, int):
            yield f"`{error}`", f"`{errors[error]}`"
        else:
            yield f"`{error['code']}`", f"`{error['error']}`: {error['meaning']}"


def _shape(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return json.dumps(schema["const"])
    kind = schema.get("type", "any")
    if kind == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(_shape(each) for each in schema["prefixItems"]) + "]"
        return "[]" if schema.get("maxItems") == 0 else f"[{_shape(schema.get('items', {}))} ...]"
    name = kind if isinstance(kind, str) else " or ".join(kind)
    return {"object": "fields", "null": "nil", "string": "text"}.get(
        name, name.replace("string", "text").replace("null", "nil")
    )


def _job(schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {schema['title']}"
    yield ""
    yield f"{schema['description'].replace('`$defs`', 'the schema')} Schema: [job.json]({SPEC_LINK}/schemas/job.json)."
    yield ""
    yield from _table(("Field", "Always", "Meaning"), _properties(schema))
    for name, title in (("opts", "Options in `opts`"), ("parent", "`parent`")):
        yield f"## {title}"
        yield ""
        yield from _table(("Member", "Always", "Meaning"), _properties(schema["$defs"][name]))


def _properties(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        meaning = field.get("description", "").replace("$defs/", "see below: ")
        yield f"`{name}`", "yes" if name in schema.get("required", ()) else "", meaning


def _events(schema: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {schema['title']}"
    yield ""
    yield f"{schema['description']} Schema: [events.json]({SPEC_LINK}/schemas/events.json)."
    yield ""
    rows = []
    for form in schema["anyOf"]:
        name = form["$ref"].rpartition("/")[2]
        items = schema["$defs"][name]["prefixItems"]
        event = items[1]["const"]
        fields = ", ".join(
            f"`{field['const']}`" + (f" = `{value['const']}`" if "const" in value else _choice(value))
            for field, value in zip(items[2::2], items[3::2], strict=True)
        )
        writers = ", ".join(row["name"] for row in table["commands"] if event in row["events"])
        rows.append((f"`{event}`", fields, schema["$defs"][name]["description"], writers))
    yield from _table(("Event", "Fields", "Meaning", "Written by (any form)"), rows)


def _choice(value: Mapping[str, Any]) -> str:
    return f" = {' or '.join(f'`{each}`' for each in value['enum'])}" if "enum" in value else ""


def _linked(row: Mapping[str, Any]) -> str:
    return f"[{row['name']}]({SPEC_LINK}/{row['spec']})"


def _code(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(head: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
