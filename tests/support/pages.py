"""The snippets of README.md and of the pages in docs, and how tests run them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
PATIENCE_S = 150
"""How long a program of a page may take."""

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The address in all of them.
_URL = "redis://localhost"


def page(name: str) -> str:
    """Return the text of a page: `README.md`, or the name of one in docs."""
    return (ROOT / name if name == "README.md" else ROOT / "docs" / name).read_text(encoding="utf-8")


def snippets(name: str, language: str = "python") -> list[str]:
    """Return the snippets of a page in one language, in their order."""
    return [text for each, text in _FENCED.findall(page(name)) if each == language]


def acl_rule(name: str, user: str) -> list[str]:
    """Return the words of a user's rule for ACL SETUSER, as a page has it."""
    [rule] = [words for each in snippets(name, "acl") if (words := each.split())[:3] == ["ACL", "SETUSER", user]]
    return rule[3:]


def with_server(snippet: str, server: Server) -> str:
    """Return a snippet with the address of a server in place of its own."""
    return snippet.replace(_URL, server.url)


def start(program: str, server: Server) -> subprocess.Popen[str]:
    """Start a program in a process of its own, on a server."""
    return subprocess.Popen(
        [sys.executable, "-c", with_server(program, server)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def run(program: str, server: Server) -> subprocess.CompletedProcess[str]:
    """Run a program to its end in a process of its own, on a server; return what it printed, and how it ended."""
    with start(program, server) as running:
        try:
            output, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    return subprocess.CompletedProcess(running.args, running.returncode, output, errors)


def run_here(name: str, snippet: str, server: Server) -> dict[str, Any]:
    """Run a snippet of a page in this process, on a server; return its names."""
    names: dict[str, Any] = {}
    exec(compile(with_server(snippet, server), os.fspath(ROOT / "docs" / name), "exec"), names)
    return names
