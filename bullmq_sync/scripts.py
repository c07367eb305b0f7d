"""BullMQ's own scripts, out of its npm package."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from bullmq_protocol.errors import UsageError
from bullmq_protocol.scripts.source import ScriptSource, read_package_version, read_script_module, script_source


def bullmq_scripts(folder: str | PathLike[str]) -> ScriptSource:
    """Read the scripts of an installed BullMQ: the folder of its npm package, or the `node_modules` that holds it.

    It reads some fifty files, and needs no Node. The source's digest tells whether two programs run the same scripts.

    Raises `UsageError` for a folder without the package, for another version of it, and for scripts whose calls do not
    fit ours.
    """
    package = Path(folder)
    if (package / "bullmq").is_dir():
        package /= "bullmq"
    try:
        version = read_package_version((package / "package.json").read_text(encoding="utf-8"))
        files = sorted((package / "dist" / "cjs" / "scripts").glob("*.js"))
        texts = {file.name: file.read_text(encoding="utf-8") for file in files if file.name != "index.js"}
    except OSError as error:
        raise UsageError("folder", str(folder), f"must hold the npm package bullmq ({error.strerror})") from None
    return script_source(f"bullmq {version}", dict(read_script_module(name, text) for name, text in texts.items()))
