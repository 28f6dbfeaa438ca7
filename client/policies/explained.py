"""Explains why a call of a recorded run was allowed or denied, from its journal."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from orga.client.errors import OrgaError
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.gate import PLAN

_PLACE = re.compile(r"(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Explanation:
    """One verdict, and the proposal that it judged as far as the journal has it."""

    place: str
    """`<iteration>.<index>` of a call, `.0` of an answer, `.plan` of a plan. Parts and replacements of a call have a
    longer place."""
    agent: str
    about: dict[str, Any]
    """`tool` and `arguments`, or `respond`. Empty if the journal does not have them."""
    verdict: dict[str, Any]
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    """Trusted context and tenant, from the starter of the run."""


class NoSuchVerdict(OrgaError):
    """The run has no verdict at that place."""


def explanations(entries: Iterable[JournalEntry], place: str | None = None) -> list[Explanation]:
    """Return the verdicts of a run, or at a place (`3`, `3.0`), delegates' not included. Raise NoSuchVerdict."""
    if place is not None and not _PLACE.fullmatch(place):
        raise NoSuchVerdict(f"{place!r} is no place; write ITERATION or ITERATION.INDEX, as in 3.0")
    found = [item for item in _all_explanations(entries) if place is None or _is_at(item.place, place)]
    if not found:
        raise NoSuchVerdict(f"there is no verdict at {place}" if place else "nothing was judged yet")
    return found


def _is_at(here: str, place: str) -> bool:
    return here == place or here.startswith(f"{place}.")


def _all_explanations(entries: Iterable[JournalEntry]) -> Iterator[Explanation]:
    reading = _VerdictReader()
    for entry in entries:
        if not entry.run:
            yield from reading.entry_explanations(entry)


class _VerdictReader:
    """Reads the entries of a run in order, and so knows which proposals the next verdicts judge."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._actions: list[dict[str, Any]] = []

    def entry_explanations(self, entry: JournalEntry) -> Iterator[Explanation]:
        """Yield the verdicts in an entry."""
        data = entry.data
        match entry.event:
            case "Started":
                given = data.get("input", {})
                self._given = {name: given[name] for name in ("trusted_context", "tenant") if given.get(name)}
            case "ReasoningComplete":
                self._actions = data.get("actions", [])
            case "PolicyEvaluated":
                yield from self._explain_verdicts(entry, data.get("verdicts", []))
            case _:
                pass

    def _explain_verdicts(self, entry: JournalEntry, verdicts: list[dict[str, Any]]) -> Iterator[Explanation]:
        places = [str(place) for place in entry.data.get("places", [])]
        proposed = {f"{entry.iteration}.{index}": action for index, action in enumerate(self._actions)}
        for place, verdict in zip(places, verdicts, strict=False):
            shown = f"{place}.0" if place.isdecimal() else f"{entry.iteration}.{PLAN}" if place == PLAN else place
            yield Explanation(shown, entry.agent, proposed.get(shown, {}), verdict, self._given)
