"""Verdicts that a history can hold: one that could not be written there, or not be read again as it is, is a denial."""

from collections.abc import Iterable

from orga.workflows.types.gate import Verdict
from orga.workflows.types.json_text import MAX_DEPTH, is_deeper

MAX_BYTES = 400_000
"""Of all verdicts on one reply: they stand in a history, and what they change in calls that wait."""

MAX_WAIT_S = 10 * 365 * 86_400.0
"""How long a call can be held; a date some thousand years on is none."""

UNFIT = "what the policy answered cannot be recorded"


def recordable(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts, in order, denials in place of those that do not fit."""
    found: list[Verdict] = []
    room = MAX_BYTES
    for verdict in map(_with_an_end, verdicts):
        size = _size(verdict)
        fits = size is not None and size <= room
        found.append(verdict if fits else Verdict(decision="deny", reason=UNFIT))
        room -= size if size is not None and fits else len(UNFIT)
    return tuple(found)


def _with_an_end(verdict: Verdict) -> Verdict:
    if verdict.approval is None or verdict.approval.expires_s <= MAX_WAIT_S:
        return verdict
    return verdict.with_terms(verdict.approval.with_expiry(MAX_WAIT_S))


def _size(verdict: Verdict) -> int | None:
    """Return its bytes in a history; None when it comes back as another, or not at all: NaN, half a character."""
    if is_deeper(verdict.arguments, MAX_DEPTH):
        return None
    try:
        text = verdict.model_dump_json(exclude_unset=True)
        return len(text.encode()) if Verdict.model_validate_json(text) == verdict else None
    except (ValueError, RecursionError):
        return None
