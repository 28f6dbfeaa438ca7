"""A plan before policy and people: let through as it stands, given anew, or sent back with what is to change."""

from collections.abc import Callable

from orga.workflows.decisions.goals.change import told_steps, with_ending, with_steps, with_told, with_unusable
from orga.workflows.decisions.goals.replies import Unusable
from orga.workflows.types.gate import ProposedStep, Verdict
from orga.workflows.types.goals.pursuit import MAX_QUESTION_CHARS, OPERATOR, GoalState, Stage
from orga.workflows.types.json_text import object_in
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line
from orga.workflows.types.value import Value

YES = (
    *("yes", "y", "yep", "yeah", "ok", "okay", "sure", "approve", "approved", "fine", "good", "great", "perfect"),
    *("go", "go ahead", "go on", "do it", "proceed", "continue", "lgtm", "looks good", "looks fine", "sounds good"),
    *("it looks good", "that looks good", "this looks good", "the plan looks good", "i approve", "of course"),
)
"""What an answer begins with that approves a plan, in any case."""

ADDS_NOTHING = frozenset(
    {
        *" ".join(YES).split(),
        *("please", "thanks", "thank", "you", "and", "then", "now", "all", "is", "to", "me", "with", "right", "very"),
    }
)
"""Words that may stand behind it. Any other may say what is to change, and nothing is done that nobody has approved."""

HOW = 'answer "yes", or what is to change, or {"steps": [...]} in its place'

HOW_OF_PIPELINE = 'answer "yes", or abort the goal'

MAX_WHY_CHARS = 300


def with_plan_to_review(state: GoalState) -> GoalState:
    """Return the state whose plan is carried out, or is put before policy or a person first where that is wanted."""
    match state.goal_config.plan_review:
        case "never":
            return state.with_pursuit(stage="execute", unusable=0)
        case "policy":
            return state.with_pursuit(stage="review", question="", terms=None)
        case "always":
            return _asking(state, _is_it_right(state))


def with_end_taken_back(state: GoalState) -> GoalState:
    """Return the state that goes on; what is left of its plan is reviewed anew: the end may have come before that."""
    after = state.with_pursuit(ending=None, stage="decide" if state.pursuit.steps else "plan")
    is_reviewed = state.goal_config.plan_review != "never" and bool(state.pursuit.open_steps)
    return with_plan_to_review(after) if is_reviewed else after


def is_for_policy(state: GoalState) -> bool:
    """Return whether policy has yet to say something of the plan that is reviewed."""
    return state.goal_config.plan_review == "policy" and not state.pursuit.question


def proposed(state: GoalState) -> tuple[ProposedStep, ...]:
    """Return what is put to the policy: all that is still to be done."""
    return tuple(
        ProposedStep(id=step.id, skill=step.skill, goal=step.goal, arguments=step.arguments, depends_on=step.depends_on)
        for step in state.pursuit.open_steps
    )


def with_verdict(state: GoalState, verdict: Verdict) -> GoalState:
    """Take in what the policy says; a plan that it denies goes back to the model as one that cannot be used."""
    if verdict.decision == "allow":
        return _let_through(state)
    if verdict.decision == "approval":
        who = ", ".join(verdict.approval.approvers if verdict.approval else ())
        why = "; ".join(filter(None, (one_line(verdict.reason, MAX_WHY_CHARS), who and f"{who} may say so")))
        return _asking(state.with_pursuit(terms=verdict.approval), _is_it_right(state, f" ({why})" if why else ""))
    told = f"the policy denies this plan: {verdict.reason}"
    return _changes_of(state).denied(_taken_back(state), told)


def with_reviewed(state: GoalState, answer: str, setup: Setup) -> GoalState:
    """Take in what a person says of the plan; another plan that is none is asked about once more."""
    if is_yes(answer):
        return _let_through(state)
    return _changes_of(state).answered(state, answer, setup)


def is_yes(answer: str) -> bool:
    """Return whether an answer approves a plan as it stands, and says no more: `OK, do it!`."""
    words = "".join(each if each.isalnum() else " " for each in answer.casefold().replace("'", "")).split()
    begins = any(words[: len(yes)] == yes for yes in map(str.split, YES))
    return begins and "?" not in answer and ADDS_NOTHING.issuperset(words)


def _given_anew(state: GoalState, answer: str, setup: Setup) -> GoalState:
    try:
        given = object_in(answer) if answer.lstrip().startswith("{") else None
    except ValueError as error:
        return _asking(state, f"That is no plan ({error}): {HOW}")
    if given is None:
        told = with_told(state, f"[Plan sent back by the operator] {answer}\nNothing of it was done.")
        return _taken_back(told).with_pursuit(unusable=0)
    try:
        after = with_steps(state, given.get("steps"), setup)
    except Unusable as error:
        return _asking(state, f"That is no plan ({error}): {HOW}")
    told = with_told(after, "[Plan given by the operator] It stands in place of yours.")
    told = told.with_note("PlanAdjusted", by=OPERATOR, steps=told_steps(told.pursuit.open_steps))
    is_judged = state.goal_config.plan_review == "policy"
    return with_plan_to_review(told) if is_judged else _let_through(told)


def _is_it_right(state: GoalState, why: str = "") -> str:
    steps = ", ".join(f"{step.id} ({step.skill}): {step.goal}" for step in state.pursuit.open_steps)
    return f"Is this plan right{why}? {_changes_of(state).how}. {one_line(steps, MAX_QUESTION_CHARS)}"


def _asking(state: GoalState, question: str) -> GoalState:
    number = state.pursuit.questions + 1
    return state.with_pursuit(stage="review", question=question[:MAX_QUESTION_CHARS], questions=number)


def _let_through(state: GoalState) -> GoalState:
    return state.with_pursuit(stage="execute", question="", terms=None, unusable=0)


def _taken_back(state: GoalState) -> GoalState:
    """Return the state without the plan; no rule decides before the model has said what it does instead."""
    left = tuple(step for step in state.pursuit.steps if step.state != "open" or step.by == OPERATOR)
    stage: Stage = "decide" if any(step.state != "open" for step in left) else "plan"
    return state.with_pursuit(steps=left, due=(), stage=stage, question="", terms=None, is_guided=True)


class _Changes(Value):
    """What may become of a plan that is not let through as it stands."""

    how: str
    """What a person is told of it."""
    denied: Callable[[GoalState, str], GoalState]
    answered: Callable[[GoalState, str, Setup], GoalState]


def _sent_back(state: GoalState, told: str) -> GoalState:
    return with_unusable(state, f"{told}; nothing of it was done")


def _ended(state: GoalState, told: str) -> GoalState:
    """End it: the plan of a pipeline would be the same again."""
    return with_ending(state, ("stuck", told))


def _asked_again(state: GoalState, _: str, __: Setup) -> GoalState:
    return _asking(state, f"The plan is that of pipeline {state.pipeline}: {HOW_OF_PIPELINE}")


_OF_MODEL = _Changes(HOW, _sent_back, _given_anew)
_OF_PIPELINE = _Changes(HOW_OF_PIPELINE, _ended, _asked_again)


def _changes_of(state: GoalState) -> _Changes:
    return _OF_PIPELINE if state.pipeline else _OF_MODEL
