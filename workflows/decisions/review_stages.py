"""The review stages between a reply and its effects, and the allowed order of verdicts.

The loop, the journal and the laws of replay read these tables.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import Decision

StageName = Literal["approval", "budget", "check", "critics", "confirmation"]

ProposalStatus = Literal[
    "proposed", "held", "approved", "allowed", "asked", "reviewed", "confirmed", "ended", "denied", "rejected"
]
"""Status of a call or an answer. `held`: the gate asks a person. `asked`: a critic asks a person. `ended`: a critic
ends the run. `denied`: by the gate or a person. `rejected`: by a critic.
"""

StageVerdict = Decision | Literal["yes", "no"] | Literal["accepted", "revise", "asked", "ended", "skipped"]
"""A verdict of the gate, of a person on a held proposal, or of a critic."""

Transitions = Mapping[ProposalStatus, Mapping[StageVerdict, ProposalStatus]]
"""Verdicts that may follow a status, with the next status. No others may follow."""

GATE_TRANSITIONS: Mapping[StageVerdict, ProposalStatus] = {
    "allow": "allowed",
    "deny": "denied",
    "invalid": "denied",
    "approval": "held",
}
CRITIC_TRANSITIONS: Mapping[StageVerdict, ProposalStatus] = {
    "accepted": "reviewed",
    "revise": "rejected",
    "skipped": "rejected",
    "asked": "asked",
    "ended": "ended",
}
CONFIRMATION_TRANSITIONS: Mapping[StageVerdict, ProposalStatus] = {
    "allow": "confirmed",
    "deny": "denied",
    "invalid": "denied",
    "approval": "denied",
}
"""Verdicts of the gate in the confirmation. Nobody is asked any more, so `approval` is a denial."""

VERDICTS_AFTER_GATE: frozenset[StageVerdict] = frozenset({"yes", "no", *CRITIC_TRANSITIONS})


def recorded_verdict(event: str, data: Mapping[str, Any]) -> Any:
    """Return a note's verdict on a call or an answer after the gate, or None for other notes."""
    if event == "ApprovalResolved" and data.get("kind") == "call":
        return "yes" if data.get("approved") else "no"
    return data.get("then", "") if event == "CritiqueEvaluated" else None


def is_reported_by_stage(question: Mapping[str, Any]) -> bool:
    """Return True if the stage that asked records the verdict itself. Then the answer of people is no verdict."""
    return bool(question.get("critic"))


def _has_budget_question(setup: Setup, _: ToolCall | None) -> bool:
    return setup.config.on_exhausted == "ask" and setup.config.max_tool_calls is not None


class ReviewStage(NamedTuple):
    name: StageName
    why: str
    """The reason for its position in the order."""
    follows: Transitions = {}
    concerns: Callable[[Setup, ToolCall | None], bool] = lambda setup, call: False
    """True if this stage may decide on this call after the gate allowed it. None means the answer."""
    needs: str = ""
    """The part of the setup without which this stage has no work. "" if there is no such part."""
    keeps: tuple[str, ...] = ()
    """Fields of the state that it keeps from one reply to the next, with one value for each item of `needs`."""


ReviewStages = Sequence[ReviewStage]

APPROVAL: Transitions = {
    "held": {"yes": "approved", "no": "denied"},
    "approved": {**GATE_TRANSITIONS, "invalid": "held"},
    "allowed": GATE_TRANSITIONS,
}
CRITICS: Transitions = {"allowed": CRITIC_TRANSITIONS, "asked": CRITIC_TRANSITIONS, "reviewed": CRITIC_TRANSITIONS}
CONFIRMATION: Transitions = {"reviewed": CONFIRMATION_TRANSITIONS, "confirmed": CONFIRMATION_TRANSITIONS}

CRITICS_STAGE_FIELDS = "critics", ("critiques",)
"""`needs` and `keeps` of the critics."""

CALL_STAGES: ReviewStages = (
    ReviewStage(
        "approval",
        "an approval belongs to the gate's verdict, and a call that people deny needs no more stages",
        APPROVAL,
    ),
    ReviewStage("budget", "calls beyond the budget need no review", concerns=_has_budget_question),
    ReviewStage("critics", "critics see exactly what would run", CRITICS, Setup.is_reviewed, *CRITICS_STAGE_FIELDS),
    ReviewStage("confirmation", "after any pause, the policies of this moment decide", CONFIRMATION),
)

ANSWER_STAGES: ReviewStages = (
    ReviewStage("approval", "as for calls", APPROVAL),
    ReviewStage("check", "an answer that goes back to the model needs no review"),
    ReviewStage(
        "critics",
        "critics see only answers without other problems",
        CRITICS,
        Setup.is_reviewed,
        *CRITICS_STAGE_FIELDS,
    ),
)

STAGE_NEEDS = tuple(dict.fromkeys(stage.needs for stage in (*CALL_STAGES, *ANSWER_STAGES) if stage.keeps))
"""Parts of the setup that stages need."""

STAGE_FIELDS = tuple(dict.fromkeys(field for stage in (*CALL_STAGES, *ANSWER_STAGES) for field in stage.keeps))
"""Fields of the state that stages keep."""


def is_in_question(setup: Setup | None, call: ToolCall | None = None) -> bool:
    """Return True if a stage may still decide on an allowed call or answer. Until then it must not have any effect."""
    stages = ANSWER_STAGES if call is None else CALL_STAGES
    return setup is not None and any(stage.concerns(setup, call) for stage in stages)


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
