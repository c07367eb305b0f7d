"""Which golden vectors of earlier versions do not hold for a later one: BullMQ's own scripts of that version decide.

`python -m tests.oracle.superseded` records them in `bullmq_conformance/superseded.json`, with `--check` it says whether
that is stale. A vector whose call has another number of keys than the later script takes does not hold either, whatever
the script makes of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bullmq_conformance import scripts as conformance
from bullmq_conformance import vectors
from bullmq_conformance.wire import DUMP, Wire
from tests.oracle.scripts import originals, recorded_keys
from tests.support import servers

FILE = Path(vectors.__file__).with_name("superseded.json")
Superseded = Mapping[str, Mapping[str, list[str]]]


def superseded(wire: Wire) -> Superseded:
    """Run the vectors of earlier versions with the scripts of later ones, on the database of a connection."""
    found: dict[str, dict[str, list[str]]] = {}
    dump = wire.load(DUMP)
    for place, version in enumerate(vectors.VERSIONS[1:], 1):
        texts, keys = originals(version), recorded_keys(version)
        loaded = {name: wire.load(text) for name, text in texts.items()}
        found[version] = {
            since: sorted(
                vector["id"]
                for command, each in vectors.own(since).items()
                for vector in each
                if command not in loaded
                or keys[command] != len(vector["call"]["keys"])
                or conformance.one(wire, loaded[command], dump, command, vector)
            )
            for since in vectors.VERSIONS[:place]
        }
    return found


def text_of(found: Superseded) -> str:
    return json.dumps(found, indent=1) + "\n"


def changed(found: Superseded, known: Superseded) -> Iterator[str]:
    """Tell which vectors hold that are recorded not to, and the reverse."""
    for version in sorted(found.keys() | known.keys()):
        now, before = found.get(version, {}), known.get(version, {})
        for since in sorted(now.keys() | before.keys()):
            gone, gone_before = set(now.get(since, ())), set(before.get(since, ()))
            yield from (f"{version}: {since}/{each} holds" for each in sorted(gone_before - gone))
            yield from (f"{version}: {since}/{each} does not hold" for each in sorted(gone - gone_before))


def recorded() -> Superseded:
    """Return what the file has."""
    found: Superseded = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the file, or tell what is stale in it; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    with servers.start() as server:
        opened = Wire(server.host, server.port)
        found = superseded(opened)
        opened.close()
    if not arguments:
        FILE.write_text(text_of(found), encoding="utf-8")
        return 0
    stale = list(changed(found, recorded()))
    sys.stderr.writelines(f"{each}\n" for each in stale)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
