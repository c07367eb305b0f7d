"""Which golden vectors of earlier versions do not hold for a later one: BullMQ's own scripts of that version decide.

`python -m tests.oracle.superseded` records them in `bullmq_conformance/superseded.json`. A vector whose call has
another number of keys than the later script takes does not hold either, whatever the script makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    dump = wire.run([("SCRIPT", "LOAD", DUMP)])[0].decode()
    for place, version in enumerate(vectors.VERSIONS[1:], 1):
        texts, keys = originals(version), recorded_keys(version)
        loaded = {name: wire.run([("SCRIPT", "LOAD", text)])[0].decode() for name, text in texts.items()}
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


if __name__ == "__main__":
    with servers.start() as server:
        opened = Wire(server.host, server.port)
        FILE.write_text(text_of(superseded(opened)), encoding="utf-8")
        opened.close()
