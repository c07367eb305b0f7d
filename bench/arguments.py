"""Arguments that the programs of the bench share."""

import argparse
from collections.abc import Sequence

from tests.support import servers
from tests.support.servers import NoServer, Server


def positive(text: str) -> int:
    """Read a number that is at least 1."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def chosen_from(parser: argparse.ArgumentParser, name: str, text: str, known: Sequence[str]) -> list[str]:
    """Read a comma list, each entry once; end the program if one is not known, or if there is none."""
    found = list(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if unknown := [each for each in found if each not in known]:
        parser.error(f"{name}: unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    if not found:
        parser.error(f"{name}: empty; known: {', '.join(known)}")
    return found


def started_server(parser: argparse.ArgumentParser, kind: str | None) -> Server:
    """Start a server; end the program if there is none of this kind."""
    try:
        return servers.start(kind)
    except NoServer as error:
        parser.error(f"--server: {error}")
