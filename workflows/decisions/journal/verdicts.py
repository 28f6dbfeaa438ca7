"""The recorded verdicts on a reply: which may follow each other, and which proposals may be carried out after them.

The journal and the laws of replay use this. The loop itself passes the stages of `review_stages.py` one by one.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from orga.workflows.decisions.review_stages import (
    CALL_STAGES,
    CRITIC_TRANSITIONS,
    GATE_TRANSITIONS,
    ProposalStatus,
    ReviewStages,
    StageVerdict,
)

VERDICTS_AFTER_GATE: frozenset[StageVerdict] = frozenset({"yes", "no", *CRITIC_TRANSITIONS})


def recorded_verdict(event: str, data: Mapping[str, Any]) -> Any:
    """Return a note's verdict on a call or an answer after the gate, or None for other notes."""
    if event == "ApprovalResolved" and data.get("kind") == "call":
        return "yes" if data.get("approved") else "no"
    return data.get("then", "") if event == "CritiqueEvaluated" else None


def is_reported_by_stage(question: Mapping[str, Any]) -> bool:
    """Return True if the stage that asked records the verdict itself. Then the answer of people is no verdict."""
    return bool(question.get("critic"))


REJECTED_STATUSES: frozenset[ProposalStatus] = frozenset({"rejected"})

LET_THROUGH_STATUSES: frozenset[ProposalStatus] = frozenset(
    {"allowed", "asked", "reviewed", "confirmed", "ended", "rejected"}
)
"""Statuses after the gate's last verdict was "allow"."""

EXECUTABLE_STATUSES: frozenset[ProposalStatus] = frozenset({"allowed", "reviewed", "confirmed"})

ProposalKey = TypeVar("ProposalKey", bound=Hashable)


class ProposalStatuses(Generic[ProposalKey]):
    """The status of each proposal of a reply, by place, as verdicts arrive."""

    def __init__(self, stages: ReviewStages, places: Iterable[ProposalKey] = ()) -> None:
        self._stages = stages
        self._statuses: dict[ProposalKey, ProposalStatus] = dict.fromkeys(places, "proposed")
        self._unconfirmed: set[ProposalKey] = set()

    def status_of(self, place: ProposalKey) -> ProposalStatus:
        """Return the status of a proposal. Without any verdict it is `proposed`."""
        return self._statuses.get(place, "proposed")

    def places_with_status(self, statuses: frozenset[ProposalStatus]) -> tuple[ProposalKey, ...]:
        return tuple(place for place, status in self._statuses.items() if status in statuses)

    def begin_judging(self, place: ProposalKey) -> None:
        """Restart the review of a proposal, for example after continue-as-new. Earlier verdicts no longer count."""
        self._statuses[place] = "proposed"
        self._unconfirmed.discard(place)

    def apply_verdict(self, place: ProposalKey, verdict: StageVerdict) -> bool:
        """Apply a verdict. Return False, and change nothing, if it may not follow the earlier ones."""
        then = next_status(self._stages, self.status_of(place), verdict)
        if then is None:
            return False
        self._statuses[place] = then
        if verdict in GATE_TRANSITIONS:
            self._unconfirmed.discard(place)
        return True

    def record_pause(self) -> None:
        """Record that people hold up the run. Calls that were allowed until now have to be confirmed."""
        if any(stage.name == "confirmation" for stage in self._stages):
            self._unconfirmed.update(self.places_with_status(LET_THROUGH_STATUSES - REJECTED_STATUSES))

    def needs_confirmation(self, place: ProposalKey) -> bool:
        """True if the run was paused or waited since the gate's last verdict on it."""
        return place in self._unconfirmed

    def missing_verdict_text(self, place: ProposalKey) -> str:
        """Return the verdict that is still missing before the effect, or ""."""
        status = self.status_of(place)
        if status not in EXECUTABLE_STATUSES:
            return _MISSING_VERDICT_TEXTS[status]
        return "the gate's confirmation after a pause" if self.needs_confirmation(place) else ""

    def record_start(self, place: ProposalKey) -> None:
        """Record that a proposal is carried out. The history shows that, whatever its verdicts were."""
        self._statuses[place] = "allowed"
        self._unconfirmed.discard(place)


def next_status(stages: ReviewStages, status: ProposalStatus, verdict: StageVerdict) -> ProposalStatus | None:
    """Return the status after a verdict, or None if it may not follow. The first verdict is the gate's."""
    if status == "proposed":
        return GATE_TRANSITIONS.get(verdict)
    for stage in stages:
        following = stage.follows.get(status)
        if following is not None and verdict in following:
            return following[verdict]
    return None


_MISSING_VERDICT_TEXTS: Mapping[ProposalStatus, str] = {
    "proposed": "a verdict of the gate",
    "held": "a person's answer",
    "approved": "the gate's verdict on what a person approved",
    "asked": "the verdict of the person whom a critic asks",
    "ended": "a critic's yes: it ended the run",
    "denied": "a yes: it was denied",
    "rejected": "a yes: a critic turned it down",
}


PASSED_STATUSES = LET_THROUGH_STATUSES - REJECTED_STATUSES
APPROVED_STATUSES: frozenset[ProposalStatus] = frozenset({"approved"})
UNDECIDED_STATUSES: frozenset[ProposalStatus] = frozenset({"proposed", "held", "approved"})
WAITING_STATUSES: frozenset[ProposalStatus] = frozenset({"proposed", "allowed"})
"""Statuses of the calls in a gate request about several: first all calls, later those that waited for held ones."""


class JournalVerdicts:
    """Follows the calls of a reply from the gate's first verdict to the last one, by their indexes.

    `in_question` are the calls that review stages may still decide on.
    """

    def __init__(self, size: int, *, in_question: Collection[int] = (), is_paused: bool) -> None:
        self._statuses = ProposalStatuses[int](CALL_STAGES, range(size))
        self._in_question = frozenset(in_question)
        self._is_paused = is_paused

    @property
    def allowed_indexes(self) -> tuple[int, ...]:
        return self._statuses.places_with_status(LET_THROUGH_STATUSES)

    @property
    def passed_indexes(self) -> tuple[int, ...]:
        """The allowed calls that no later stage has rejected."""
        return self._statuses.places_with_status(PASSED_STATUSES)

    @property
    def is_final(self) -> bool:
        """True if no verdict is missing before the calls are carried out."""
        if self._statuses.places_with_status(UNDECIDED_STATUSES):
            return False
        return not any(
            index in self._in_question or self._statuses.needs_confirmation(index) for index in self.passed_indexes
        )

    def take_verdict(self, index: int, verdict: StageVerdict) -> None:
        """Apply a verdict on a call. One that may not follow the earlier ones is ignored."""
        self._statuses.apply_verdict(index, verdict)
        if self._is_paused:
            self._statuses.record_pause()

    def take_gate_failure(self, index: int | None) -> list[int]:
        """Record that the gate failed and denied its request. None means a request about several calls."""
        about = [index] if index is not None else list(self._statuses.places_with_status(WAITING_STATUSES))
        for each in about:
            self.take_verdict(each, "deny")
        return about

    def record_pause(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        if is_paused:
            self.record_wait()

    def record_wait(self) -> None:
        self._statuses.record_pause()

    def record_start(self, index: int) -> None:
        """Record that a call is carried out. So it was allowed, and so were approved calls without a known verdict."""
        for each in (index, *self._statuses.places_with_status(APPROVED_STATUSES)):
            self._statuses.record_start(each)
