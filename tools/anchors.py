"""Record the anchors of the specification in `tests/unit/spec_anchors.txt`: `python tools/anchors.py [--check]`.

Others link to them, so none may go: a section that goes leaves its anchor with a line that says where its content is.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECS = (*sorted((ROOT / "specs").glob("0*.md")), ROOT / "specs" / "monque.md")
TARGET = ROOT / "tests" / "unit" / "spec_anchors.txt"


def main(arguments: Sequence[str]) -> int:
    """Write the list, or tell what is wrong with it; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    found = [f"{spec.name}#{anchor}" for spec in SPECS for anchor in anchors(spec)]
    recorded = TARGET.read_text(encoding="utf-8").split()
    gone = sorted(set(recorded) - set(found))
    if gone:
        print(f"specs/: give these an anchor again, with a line that says where the content went: {gone}")
        return 1
    if not arguments:
        TARGET.write_text("".join(f"{each}\n" for each in found), encoding="utf-8")
    elif found != recorded:
        print(f"tools/anchors.py: {TARGET.name} is stale, run python tools/anchors.py", file=sys.stderr)
        return 1
    return 0


def anchors(spec: Path) -> list[str]:
    """Return the anchors of a file in their order."""
    return re.findall(r'<a id="([^"]+)"></a>', spec.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
