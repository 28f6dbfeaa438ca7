"""What stands between a reply and its effects, in order, and what may follow what: read by loop, journal and laws."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import Decision

StageName = Literal["approval", "budget", "check", "critics", "confirmation"]

ProposalStatus = Literal[
    "proposed", "held", "approved", "allowed", "asked", "reviewed", "confirmed", "ended", "denied", "rejected"
]
"""Of a call or an answer. `held`: the gate wants a person's yes; `asked`: a critic does; `ended`: a critic ends the
run; `denied`: by the gate or a person; `rejected`: by a critic."""

StageVerdict = Decision | Literal["yes", "no"] | Literal["accepted", "revise", "asked", "ended", "skipped"]
"""The gate's, a person's on what it holds, a critic's."""

Transitions = Mapping[ProposalStatus, Mapping[StageVerdict, ProposalStatus]]
"""By where something stands, what may be said of it, and where it stands then; nothing else may."""

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
"""The gate's words where nobody is asked any more."""


VERDICTS_AFTER_GATE: frozenset[StageVerdict] = frozenset({"yes", "no", *CRITIC_TRANSITIONS})
"""Words that others than the gate say."""


def recorded_verdict(event: str, data: Mapping[str, Any]) -> Any:
    """Return what a note tells to have been said behind the gate, of a call or an answer; None where it is no word."""
    if event == "ApprovalResolved" and data.get("kind") == "call":
        return "yes" if data.get("approved") else "no"
    return data.get("then", "") if event == "CritiqueEvaluated" else None


def is_reported_by_stage(question: Mapping[str, Any]) -> bool:
    """Return whether the stage that asks people this says itself what follows: their answer is no word then."""
    return bool(question.get("critic"))


def _has_budget_question(setup: Setup, _: ToolCall | None) -> bool:
    return setup.config.on_exhausted == "ask" and setup.config.max_tool_calls is not None


def _is_reviewed(setup: Setup, call: ToolCall | None) -> bool:
    return setup.is_reviewed(call)


class ReviewStage(NamedTuple):
    """One stage of the way: what is said in it."""

    name: StageName
    why: str
    """It stands where it stands."""
    follows: Transitions = {}
    concerns: Callable[[Setup, ToolCall | None], bool] = lambda setup, call: False
    """Whether a run with this setup may hear a word here on a call, or (None) an answer, that the gate lets through."""
    needs: str = ""
    """The part of the setup without which it has nothing to do; "" where it always may have."""
    keeps: tuple[str, ...] = ()
    """Fields of the state in which it keeps something from one reply to the next, by the names of what it needs."""


ReviewStages = Sequence[ReviewStage]

APPROVAL: Transitions = {
    "held": {"yes": "approved", "no": "denied"},
    "approved": GATE_TRANSITIONS,
    "allowed": GATE_TRANSITIONS,
}
CRITICS: Transitions = {"allowed": CRITIC_TRANSITIONS, "asked": CRITIC_TRANSITIONS, "reviewed": CRITIC_TRANSITIONS}
CONFIRMATION: Transitions = {"reviewed": CONFIRMATION_TRANSITIONS, "confirmed": CONFIRMATION_TRANSITIONS}

CRITICS_STAGE_FIELDS = "critics", ("critiques",)

CALL_STAGES: ReviewStages = (
    ReviewStage(
        "approval", "an approval binds to the very verdict, and what people deny costs nothing further on", APPROVAL
    ),
    ReviewStage("budget", "what is beyond the budget is not worth a review", concerns=_has_budget_question),
    ReviewStage("critics", "they see just what would be run", CRITICS, _is_reviewed, *CRITICS_STAGE_FIELDS),
    ReviewStage("confirmation", "whatever held the run up since, policy of now decides", CONFIRMATION),
)

ANSWER_STAGES: ReviewStages = (
    ReviewStage("approval", "as for calls", APPROVAL),
    ReviewStage("check", "what goes back to the model anyway is not worth a review"),
    ReviewStage(
        "critics", "they see an answer that nothing else is wrong with", CRITICS, _is_reviewed, *CRITICS_STAGE_FIELDS
    ),
)

STAGE_NEEDS = tuple(dict.fromkeys(stage.needs for stage in (*CALL_STAGES, *ANSWER_STAGES) if stage.keeps))
STAGE_FIELDS = tuple(dict.fromkeys(field for stage in (*CALL_STAGES, *ANSWER_STAGES) for field in stage.keeps))
"""Parts of setups and fields of states that stages have for themselves."""


def is_in_question(setup: Setup | None, call: ToolCall | None = None) -> bool:
    """Return whether a stage may have a word on a call, or an answer: none of it counts before that."""
    stages = ANSWER_STAGES if call is None else CALL_STAGES
    return setup is not None and any(stage.concerns(setup, call) for stage in stages)


REJECTED_STATUSES: frozenset[ProposalStatus] = frozenset({"rejected"})

LET_THROUGH_STATUSES: frozenset[ProposalStatus] = frozenset(
    {"allowed", "asked", "reviewed", "confirmed", "ended", "rejected"}
)
"""By the gate's last word."""

EXECUTABLE_STATUSES: frozenset[ProposalStatus] = frozenset({"allowed", "reviewed", "confirmed"})

ProposalKey = TypeVar("ProposalKey", bound=Hashable)


class ProposalStatuses(Generic[ProposalKey]):
    """Where the proposals of a reply stand, by their places, as one word after the other is taken in."""

    def __init__(self, stages: ReviewStages, places: Iterable[ProposalKey] = ()) -> None:
        self._stages = stages
        self._standings: dict[ProposalKey, ProposalStatus] = dict.fromkeys(places, "proposed")
        self._late: set[ProposalKey] = set()

    def of(self, place: ProposalKey) -> ProposalStatus:
        """Return where it stands; what nothing was said of is proposed at most."""
        return self._standings.get(place, "proposed")

    def among(self, standings: frozenset[ProposalStatus]) -> tuple[ProposalKey, ...]:
        """Return the places that stand so, in the order in which they were proposed."""
        return tuple(place for place, standing in self._standings.items() if standing in standings)

    def begin(self, place: ProposalKey) -> None:
        """Put it to the gate anew: the run continued as new, say. What was said before counts no more."""
        self._standings[place] = "proposed"
        self._late.discard(place)

    def hear(self, place: ProposalKey, word: StageVerdict) -> bool:
        """Take a word in; False where it may not follow what was said before: then nothing changes."""
        then = next_status(self._stages, self.of(place), word)
        if then is None:
            return False
        self._standings[place] = then
        if word in GATE_TRANSITIONS:
            self._late.discard(place)
        return True

    def hold_up(self) -> None:
        """Take in that people hold the run up: what was let through until now has to be confirmed, if it is a call."""
        if any(stage.name == "confirmation" for stage in self._stages):
            self._late.update(self.among(LET_THROUGH_STATUSES - REJECTED_STATUSES))

    def is_late(self, place: ProposalKey) -> bool:
        """Whether the run stood still since the gate's last word on it."""
        return place in self._late

    def lacks(self, place: ProposalKey) -> str:
        """Return what has to be there yet before the effect, or ""."""
        standing = self.of(place)
        if standing not in EXECUTABLE_STATUSES:
            return _MISSING_VERDICT_TEXTS[standing]
        return "the gate's confirmation, behind what held the run up" if self.is_late(place) else ""

    def show_begun(self, place: ProposalKey) -> None:
        """Take in that it is carried out: the history shows it, whatever was said."""
        self._standings[place] = "allowed"
        self._late.discard(place)


def next_status(stages: ReviewStages, standing: ProposalStatus, word: StageVerdict) -> ProposalStatus | None:
    """Return where something stands after a word, or None where that may not be said then; the gate begins."""
    if standing == "proposed":
        return GATE_TRANSITIONS.get(word)
    for stage in stages:
        said = stage.follows.get(standing)
        if said is not None and word in said:
            return said[word]
    return None


_MISSING_VERDICT_TEXTS: Mapping[ProposalStatus, str] = {
    "proposed": "a verdict of the gate",
    "held": "a person's answer",
    "approved": "the gate's verdict on what a person approved",
    "asked": "the word of the person whom a critic asks",
    "ended": "a critic's yes: it ended the run",
    "denied": "a yes: it was denied",
    "rejected": "a yes: a critic turned it down",
}
