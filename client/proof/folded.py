"""Folds the histories of a chain in one pass: contexts, journal, and a recount of the result."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from orga.client.history.chain import RunHistory
from orga.client.history.events import read_events
from orga.client.history.values import values_of
from orga.client.journal.reading import past_missing
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.decisions.recount import ContextFold, ResultRecount
from orga.workflows.types.names import PROMPT_ACTIVITIES
from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.text import one_line

DETAIL_CHARS = 300

T = TypeVar("T")


class GuardedFold(Generic[T]):
    """A fold that is fed up to the first event that does not fit.

    A history may hold anything, so an error is a finding, not a defect.
    """

    def __init__(self, feed: Callable[[Happening], Iterable[T]]) -> None:
        self.found: list[T] = []
        self.fault = ""
        """The place and reason of an early end, or ""."""
        self._feed = feed

    def feed(self, happening: Happening, place: str) -> None:
        """Add the next event, which `place` names in errors."""
        if self.fault:
            return
        try:
            self.found += self._feed(happening)
        except Exception as error:  # see the class
            self.fault = fault_at(place, error)


class ChainFolds:
    """Folds the histories of a chain, oldest first. No event is kept."""

    def __init__(self, *, is_cut: bool) -> None:
        """Begin a chain. `is_cut` if the server no longer has its oldest runs."""
        self.journal = GuardedFold[JournalEntry](JournalFold().feed)
        self.miscounts = GuardedFold[str](ResultRecount().feed)
        self.is_completed = False
        """True if there is a result to recount."""
        self._is_cut = is_cut

    async def feed(self, client: Client, run: RunHistory) -> tuple[int, str]:
        """Add the next run. Return its number of model calls, and the fault of their contexts, if any."""
        fold = ContextFold()
        calls, last = 0, 0

        def feed_context(happening: Happening) -> Iterable[None]:
            fold.feed(happening)
            return ()

        contexts = GuardedFold[None](feed_context)
        try:
            async for happening in read_events(values_of(client, run.history), _as_async(run.events)):
                last = happening.event_id
                calls += happening.kind == "scheduled" and happening.name in PROMPT_ACTIVITIES
                contexts.feed(happening, f"iteration {fold.iteration + 1}, event {last}")
                self._feed(happening)
        except Exception as error:  # an error is a finding here, too
            return calls, fault_at(f"event {last + 1} and later", error)
        return calls, contexts.fault

    def _feed(self, happening: Happening) -> None:
        self._feed_chain(happening)
        if self._is_cut:
            self._is_cut = False
            self._feed_chain(past_missing(happening))

    def _feed_chain(self, happening: Happening) -> None:
        self.journal.feed(happening, f"event {happening.event_id}")
        self.miscounts.feed(happening, "the events")
        self.is_completed = self.is_completed or happening.kind == "workflow_completed"


def fault_at(place: str, error: Exception) -> str:
    """Return the fault in one line."""
    return one_line(f"{place}: {type(error).__name__}: {error}", DETAIL_CHARS)


async def _as_async(events: Sequence[HistoryEvent]) -> AsyncGenerator[HistoryEvent]:
    for event in events:
        yield event
