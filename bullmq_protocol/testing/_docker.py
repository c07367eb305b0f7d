"""Servers out of Docker: needs testcontainers, which the extra `testing` brings. `server.py` imports it by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# By name: they bring no types that strict checks accept.
_errors: Any = importlib.import_module("docker.errors")
_containers: Any = importlib.import_module("testcontainers.core.container")
_clients: Any = importlib.import_module("testcontainers.core.docker_client")


def engine_answers() -> bool:
    """Tell whether an engine answers within two seconds."""
    try:
        # Where testcontainers looks, too; making it asks for the engine's version.
        engine = _clients.DockerClient(timeout=2).client
    except (_errors.DockerException, OSError):
        return False
    try:
        return bool(engine.ping())
    except (_errors.DockerException, OSError):
        return False
    finally:
        engine.close()


class Container:
    """Holds one server in a container."""

    def __init__(self, image: str, arguments: Sequence[str], folder: Path, port: int) -> None:
        self._program = "valkey-server" if "valkey" in image else "redis-server"
        folder.chmod(0o777)
        self._container: Any = (
            _containers.DockerContainer(image)
            .with_command([self._program, *arguments, "--bind", "0.0.0.0", "--protected-mode", "no"])
            .with_bind_ports(port, port)
            .with_volume_mapping(str(folder), str(folder), "rw")
        )
        self._begun = False

    @property
    def pid(self) -> int:
        """The process id."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"])

    def version_text(self) -> str:
        """Return what the server program answers to `--version`."""
        done = self._container.get_wrapped_container().exec_run([self._program, "--version"])
        return str(done.output.decode())

    def launch(self) -> None:
        """Start the container, or start it again."""
        if self._begun:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._begun = True

    def alive(self) -> bool:
        """Whether the program runs."""
        return self._begun and self.pid != 0

    def end(self, *, force: bool) -> None:
        """End the program, with `force` by SIGKILL."""
        if not self.alive():
            return
        wrapped = self._container.get_wrapped_container()
        if force:
            wrapped.kill()
        else:
            wrapped.stop()

    def discard(self) -> None:
        """Remove the container."""
        if self._begun:
            self._container.stop()
