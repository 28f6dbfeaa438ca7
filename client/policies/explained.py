"""Explains why a call of a recorded run was allowed or denied, from its journal."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from orga.client.errors import OrgaError
from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
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
    about: on.RecordedAction | None
    """None if it was no part of the reply."""
    verdict: on.RecordedVerdict
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    """Trusted context and tenant, from the starter of the run."""


class NoSuchVerdict(OrgaError):
    """The run has no verdict at that place."""


def explanations(entries: Iterable[JournalEntry], place: str | None = None) -> list[Explanation]:
    """Return the verdicts of the run itself, all or those at a place (`3`, `3.0`). Raise NoSuchVerdict."""
    if place is not None and not _PLACE.fullmatch(place):
        raise NoSuchVerdict(f"{place!r} is no place; write ITERATION or ITERATION.INDEX, as in 3.0")
    found = [item for item in _all_explanations(entries) if place is None or _is_at(item.place, place)]
    if not found:
        raise NoSuchVerdict(f"there is no verdict at {place}" if place else "nothing was judged yet")
    return found


def _is_at(here: str, place: str) -> bool:
    return here == place or here.startswith(f"{place}.")


def _all_explanations(entries: Iterable[JournalEntry]) -> Iterator[Explanation]:
    given, actions = dict[str, Any](), tuple[on.RecordedAction, ...]()
    for entry in entries:
        event = None if entry.run else read_event(entry)
        if isinstance(event, on.Started):
            given = {name: event.input[name] for name in ("trusted_context", "tenant") if event.input.get(name)}
        elif isinstance(event, on.ReasoningComplete):
            actions = event.actions
        elif isinstance(event, on.PolicyEvaluated):
            proposed = {f"{entry.iteration}.{index}": action for index, action in enumerate(actions)}
            for place, verdict in zip(event.places, event.verdicts, strict=False):
                shown = f"{place}.0" if place.isdecimal() else f"{entry.iteration}.{PLAN}" if place == PLAN else place
                yield Explanation(shown, entry.agent, proposed.get(shown), verdict, given)
