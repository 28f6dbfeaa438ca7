"""The review stages between a reply and its effects, with the verdicts that may follow each other.

The loop passes these stages. The journal and the laws of replay check their order in what is recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

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


def _has_budget_question(setup: Setup, _: ToolCall) -> bool:
    return setup.config.on_exhausted == "ask" and setup.config.max_tool_calls is not None


def _has_critic_of_answers(setup: Setup) -> bool:
    return any(critic.reviews_answers for critic in setup.critics)


class ReviewStage(NamedTuple):
    name: StageName
    why: str
    """The reason for its position in the order."""
    follows: Transitions = {}
    concerns_call: Callable[[Setup, ToolCall], bool] = lambda setup, call: False
    """True if this stage may decide on this call after the gate allowed it."""
    concerns_answers: Callable[[Setup], bool] = lambda setup: False
    """True if this stage may decide on answers after the gate allowed them."""
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

CALL_STAGES: ReviewStages = (
    ReviewStage(
        "approval",
        "an approval belongs to the gate's verdict, and a call that people deny needs no more stages",
        APPROVAL,
    ),
    ReviewStage("budget", "calls beyond the budget need no review", concerns_call=_has_budget_question),
    ReviewStage(
        "critics",
        "critics see exactly what would run",
        CRITICS,
        concerns_call=Setup.is_reviewed,
        needs="critics",
        keeps=("critiques",),
    ),
    ReviewStage("confirmation", "after any pause, the policies of this moment decide", CONFIRMATION),
)

ANSWER_STAGES: ReviewStages = (
    ReviewStage("approval", "as for calls", APPROVAL),
    ReviewStage("check", "an answer that goes back to the model needs no review"),
    ReviewStage(
        "critics",
        "critics see only answers without other problems",
        CRITICS,
        concerns_answers=_has_critic_of_answers,
        needs="critics",
        keeps=("critiques",),
    ),
)

STAGE_NEEDS = tuple(dict.fromkeys(stage.needs for stage in (*CALL_STAGES, *ANSWER_STAGES) if stage.keeps))
"""Parts of the setup that stages need."""

STAGE_FIELDS = tuple(dict.fromkeys(field for stage in (*CALL_STAGES, *ANSWER_STAGES) for field in stage.keeps))
"""Fields of the state that stages keep."""


def is_call_in_question(setup: Setup | None, call: ToolCall) -> bool:
    """Return True if a stage may still decide on an allowed call. Until then the call must not have any effect."""
    return setup is not None and any(stage.concerns_call(setup, call) for stage in CALL_STAGES)


def are_answers_in_question(setup: Setup | None) -> bool:
    """Return True if a stage may still decide on an allowed answer. Until then the answer must not become output."""
    return setup is not None and any(stage.concerns_answers(setup) for stage in ANSWER_STAGES)
