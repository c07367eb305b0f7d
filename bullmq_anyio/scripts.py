"""BullMQ's own scripts, out of its npm package."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from bullmq_protocol.errors import UsageError
from bullmq_protocol.scripts.profile import Profile, profile_of, read_package_version, read_script_module


def bullmq_scripts(folder: str | PathLike[str]) -> Profile:
    """Read the scripts of an installed BullMQ: some fifty files. Node is not needed.

    Args:
        folder: The folder of the npm package, or the `node_modules` that holds it.

    Returns:
        The profile, for the argument `scripts` of queues and workers. Two programs whose profiles have the same
            `digest` run the same scripts.

    Raises:
        UsageError: The folder does not hold the package, or holds another version of it, or scripts whose calls do not
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
    return profile_of(f"bullmq {version}", dict(read_script_module(name, text) for name, text in texts.items()))
