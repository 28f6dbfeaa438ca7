"""The facts about runs that the console keeps in memory, so that it need not read them again."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from orga.client.journal.event_types import Prepared, Started
from orga.client.journal.run_view import RunView

K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V]):
    """Values that are kept in memory. When it is full, it drops all of them."""

    def __init__(self, size: int) -> None:
        self._size = size

    def keep(self, key: K, value: V) -> V:
        if len(self) >= self._size:
            self.clear()
        self[key] = value
        return value


class Execution(NamedTuple):
    """A segment of a run."""

    workflow_id: str
    run_id: str


class Beginning(NamedTuple):
    """The first events of a journal, as far as they are known."""

    started: Started | None = None
    setup: Prepared | None = None


class KnownView(NamedTuple):
    version: tuple[str, int]
    """The run id and the length of the history that was read."""
    view: RunView


class WaitContext(NamedTuple):
    policies: tuple[str, ...] = ()
    """The policies that hold the wait."""
    before: str = ""
    """The last act of the run before it asked."""


@dataclass(frozen=True)
class Caches:
    tasks: Cache[Execution, str] = field(default_factory=lambda: Cache(20_000))
    """The tasks of executions, each of at most 200 characters. They never change."""
    beginnings: Cache[Execution, Beginning] = field(default_factory=lambda: Cache(200))
    views: Cache[str, KnownView] = field(default_factory=lambda: Cache(50))
    """By workflow id: runs as their whole journal shows them. Only runs without a worker or a result are read so."""
    contexts: Cache[tuple[str, str], WaitContext] = field(default_factory=lambda: Cache(5_000))
    """By run and wait. They never change."""
