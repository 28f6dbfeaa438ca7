"""The calls of an iteration while they are carried out: which, since when, and what those took that are over."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from orga.client.cli.narration import call_text
from orga.client.journal.events import LiveActivity
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.status import JournalEntry


@dataclass(frozen=True)
class InFlight:
    """An activity that is under way or waits for its next attempt."""

    activity_id: str
    name: str
    attempt: int = 1
    failure: str = ""
    """Of the attempt before this one."""
    text: str = ""
    """The tail of what a model has written so far."""
    since: datetime | None = None
    """Start of this attempt; None while it waits for a worker or for its retry."""
    retry_at: datetime | None = None
    took_s: float | None = None
    """Of a call that is over while others of its iteration are not."""

    @classmethod
    def of(cls, live: LiveActivity) -> "InFlight":
        """Return what is shown of a live activity."""
        return cls(live.activity_id, live.name, live.attempt, live.failure, live.text, live.since, live.retry_at)

    def place(self) -> list[tuple[int, str]]:
        """Return what activities are sorted by: calls in the order of the reply."""
        return [(int(part) if part.isdecimal() else 0, part) for part in self.activity_id.split(".")]


@dataclass(frozen=True)
class Flights:
    """What the server says is under way, beside what the journal says of it."""

    under_way: tuple[InFlight, ...] = ()
    over: tuple[InFlight, ...] = ()
    """Calls that were under way before, until the journal tells what became of all of them."""
    calls: tuple[tuple[str, str], ...] = ()
    """The reply's calls in words, by their places."""
    told: int = 0
    """The last iteration whose calls are over, as the journal has told: an older look may still show them."""

    def with_entry(self, entry: JournalEntry) -> "Flights":
        """Take in the next journal entry."""
        if entry.event == "ReasoningComplete":
            actions: list[dict[str, Any]] = entry.data.get("actions", [])
            calls = {f"{entry.iteration}.{nth}": call_text(each) for nth, each in enumerate(actions) if "tool" in each}
            return replace(self, calls=tuple(calls.items()), over=())
        if entry.event == "ObservationsCollected":
            under_way = tuple(each for each in self.under_way if not _is_of(each, entry.iteration))
            return replace(self, under_way=under_way, over=(), told=max(self.told, entry.iteration))
        return replace(self, under_way=(), over=()) if entry.event == "Terminated" else self

    def seen(self, activities: tuple[InFlight, ...], now: datetime) -> "Flights":
        """Take in a look at the server: a call that was under way and is no longer has ended since the last one."""
        current = tuple(each for each in activities if not _is_of(each, self.told))
        ids = {each.activity_id for each in current}
        gone = [each for each in self.under_way if each.activity_id not in ids and each.name not in OWN_ACTIVITIES]
        ended = tuple(replace(each, took_s=_since_s(each, now)) for each in gone)
        kept = tuple(each for each in self.over if each.activity_id not in ids)
        return replace(self, under_way=current, over=(*kept, *ended))

    def in_words(self, activity: InFlight) -> str:
        """Return the call with its first argument; what is no call of the reply, a fallback say, by its name alone."""
        text = dict(self.calls).get(activity.activity_id.partition(".r")[0], "")
        return text if text.split(" ")[0] == activity.name else activity.name


def _is_of(activity: InFlight, iteration: int) -> bool:
    """Return whether it is a call of that iteration or one before it; a dead letter is sent again later."""
    number, _, _ = activity.activity_id.partition(".")
    is_call = activity.name not in OWN_ACTIVITIES and ".q" not in activity.activity_id
    return is_call and number.isdecimal() and int(number) <= iteration


def _since_s(activity: InFlight, now: datetime) -> float:
    return max((now - activity.since).total_seconds(), 0.0) if activity.since else 0.0
