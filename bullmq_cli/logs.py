"""Logging of `bullmq-worker`: as text or JSON, or as a file says."""

from __future__ import annotations

import importlib
import json
import logging
import time
import tomllib
from pathlib import Path
from typing import Any

from bullmq_cli.text import visible

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_KEPT = {"disable_existing_loggers": False}
"""Unless a file says otherwise: else the program's own logger, which is there already, would say nothing any more."""
_USUAL = frozenset(vars(logging.makeLogRecord({})))


class LogConfigError(Exception):
    """A file sets up no logging. Its text says why."""


class JsonFormatter(logging.Formatter):
    """One JSON object for each record: `time`, `level`, `logger`, `message`, and the fields given in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update((name, value) for name, value in vars(record).items() if name not in _USUAL and name[0] != "_")
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # In ASCII letters: what standard error cannot write would make it no JSON.
        return json.dumps(fields, default=str).replace("\x7f", "\\u007f")


class TextFormatter(logging.Formatter):
    """A record as text, in which nothing that comes out of a job steers a terminal. Tracebacks keep their lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines."""
        return visible(super().format(record), lines=True)


def set_up(level: str, form: str) -> None:
    """Send records of this level and above to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def name_jobs(jobs: logging.Filter) -> None:
    """Let records that handlers of jobs make have the fields of their job, where `set_up` says how they look."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter | TextFormatter):
            handler.addFilter(jobs)


def set_up_by_file(path: Path) -> None:
    """Set logging up as a file says: a dictionary of `logging.config` in JSON or TOML, else its ini format.

    Raises `LogConfigError`.
    """
    config: Any = importlib.import_module("logging.config")
    try:
        if path.suffix == ".json":
            config.dictConfig({**_KEPT, **json.loads(path.read_text(encoding="utf-8"))})
        elif path.suffix == ".toml":
            config.dictConfig({**_KEPT, **tomllib.loads(path.read_text(encoding="utf-8"))})
        else:
            # Given a path, it takes a file that is not there for an empty one.
            with path.open(encoding="utf-8") as file:
                config.fileConfig(file, disable_existing_loggers=False)
    except OSError as error:
        raise LogConfigError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:
        raise LogConfigError(f"{path} sets up no logging: {type(error).__name__}: {error}") from None
