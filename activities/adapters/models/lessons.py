"""A file with what models have refused, so that workers of one state folder do not each learn it again.

It holds the accepted parts of requests by digest of endpoint, protocol and model: no key, no address, and nothing of a
conversation. Without a readable file that only its owner can write, each worker learns for itself.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.shared_files import OwnFile, write_atomically
from orga.workflows.types.json_text import as_object

LESSON_S = 6 * 3_600.0
"""Seconds for which a lesson counts. A server may be updated, and then accept what it has refused."""

MAX_KEPT_LESSONS = 256
MAX_BYTES = 1_000_000

_DIALECT = TypeAdapter(Dialect)


def lesson_key(url: str, model: str, usual: Dialect) -> str:
    """Return the key of a model at a protocol's URL. Other settings of the endpoint are another `usual`, and key."""
    return sha256(json.dumps([url, model, _plain(usual)], sort_keys=True).encode()).hexdigest()


class LessonFile:
    """The lessons in one file. Each has the time until which it counts, by the clock of the machine."""

    def __init__(self, path: Path) -> None:
        self._file = OwnFile(path, lambda text: as_object(json.loads(text)), most=MAX_BYTES, denied=0o022)

    def get(self, key: str) -> Dialect | None:
        """Return a lesson that still counts, or None."""
        lesson = as_object(self._read().get(key))
        if 0 < _until(lesson) - time.time() <= LESSON_S:
            with suppress(ValidationError):
                return _DIALECT.validate_python(lesson.get("dialect"), extra="forbid")
        return None

    def keep(self, key: str, dialect: Dialect) -> None:
        """Add a lesson. If the file cannot be written, it is not kept."""
        now = time.time()
        others = {name: each for name, each in self._read().items() if name != key and _until(each) > now}
        newest = sorted(others, key=lambda name: _until(others[name]))[1 - MAX_KEPT_LESSONS :]
        lessons = {name: others[name] for name in newest} | {key: {"until": now + LESSON_S, "dialect": _plain(dialect)}}
        with suppress(OSError):
            write_atomically(self._file.path, json.dumps(lessons).encode(), with_folder=True)

    def _read(self) -> dict[str, Any]:
        return self._file.read() or {}


def _until(lesson: object) -> float:
    until = as_object(lesson).get("until")
    return until if isinstance(until, float) else 0.0


def _plain(dialect: Dialect) -> dict[str, Any]:
    """Return the fields as JSON. Sets have an order of their own in each process."""
    fields = asdict(dialect).items()
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in fields}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
