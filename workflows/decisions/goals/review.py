"""The review of a plan by policy and people: approved as it is, replaced, or sent back with requested changes."""

from collections.abc import Callable
from typing import NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.conversation import with_message_to_model
from orga.workflows.decisions.goals.progress import steps_data, with_ending, with_steps, with_unusable_reply
from orga.workflows.decisions.goals.replies import UnusableReply
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.pursuit import OPERATOR, GoalPhase, GoalState
from orga.workflows.types.goals.requests import goal_reply_object, steps_in_reply
from orga.workflows.types.questions import Resolution
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import escaped_line, one_line
from orga.workflows.types.tool_calls.gate import ProposedStep, Verdict

YES_WORDS = (
    *("yes", "y", "yep", "yeah", "ok", "okay", "sure", "approve", "approved", "fine", "good", "great", "perfect"),
    *("go", "go ahead", "go on", "do it", "proceed", "continue", "lgtm", "looks good", "looks fine", "sounds good"),
    *("it looks good", "that looks good", "this looks good", "the plan looks good", "i approve", "of course"),
)
"""Beginnings of an answer that approves a plan, in any case."""

FILLER_WORDS = frozenset(
    {
        *" ".join(YES_WORDS).split(),
        *("please", "thanks", "thank", "you", "and", "then", "now", "all", "is", "to", "me", "with", "right", "very"),
    }
)
"""Words that may follow such a beginning. Any other word may request a change, so the answer is no approval."""

CHANGE_HINT = 'or describe what to change, or give {"steps": [...]} instead'

PIPELINE_CHANGE_HINT = "or abort the goal"

MAX_WHY_CHARS = 300
MAX_SHOWN_CHARS = 4_000
"""Characters for the steps of a plan. If not all steps fit whole, a mere yes is not enough."""

NOT_APPROVED = "the plan was not approved"


def with_plan_to_review(state: GoalState) -> GoalState:
    """Return the state in which the plan is carried out or, if the config requires it, reviewed first."""
    match state.goal_config.plan_review:
        case "never":
            return state.with_pursuit(stage="execute", unusable=0)
        case "policy":
            return state.with_pursuit(stage="review", question="", terms=None)
        case "always":
            return _with_plan_question(state, _review_question_text(state))


def with_end_withdrawn(state: GoalState) -> GoalState:
    """Return the state that continues. The rest of its plan is reviewed, because the end may have prevented that."""
    after = state.with_pursuit(ending=None, stage="decide" if state.pursuit.steps else "plan")
    is_reviewed = state.goal_config.plan_review != "never" and bool(state.pursuit.open_steps)
    return with_plan_to_review(after) if is_reviewed else after


def is_for_policy(state: GoalState) -> bool:
    return state.goal_config.plan_review == "policy" and not state.pursuit.question


def proposed_steps(state: GoalState) -> tuple[ProposedStep, ...]:
    return tuple(
        ProposedStep(id=step.id, skill=step.skill, goal=step.goal, arguments=step.arguments, depends_on=step.depends_on)
        for step in state.pursuit.open_steps
    )


def with_plan_verdict(state: GoalState, verdict: Verdict) -> GoalState:
    """Apply the policy's verdict. A denied plan goes back to the model as unusable."""
    if verdict.decision == "allow":
        return _with_approved_plan(state)
    if verdict.decision == "approval":
        who = ", ".join(verdict.approval.approvers if verdict.approval else ())
        reasons = [one_line(verdict.reason, MAX_WHY_CHARS), f"{who} may approve it" if who else ""]
        why = "; ".join(filter(None, reasons))
        return _with_plan_question(
            state.with_pursuit(terms=verdict.approval), _review_question_text(state, f" ({why})" if why else "")
        )
    problem = f"the policy denies this plan: {verdict.reason}"
    return _review_rules(state).denied(_with_plan_withdrawn(state), problem)


def plan_question(state: GoalState) -> tuple[int, str]:
    """Return the number and the text of the question about the plan. Another plan is another question."""
    return state.pursuit.questions, state.pursuit.question


def with_review_answer(state: GoalState, answer: str, setup: Setup) -> GoalState:
    """Apply a person's answer about the plan. If it holds an invalid plan, the question is asked again.

    If the plan was not shown in full, an approval has to state the number of steps.
    """
    is_full_yes = answer.strip().rstrip(".!").casefold() == _full_approval_text(state)
    is_approved = is_full_yes if _hidden_step_count(state) else is_yes(answer)
    if is_approved:
        return _with_approved_plan(state)
    if is_yes(answer):
        return _with_plan_question(state, _review_question_text(state, " (it is too long to be shown here in full)"))
    return _review_rules(state).answered(state, answer, setup)


def with_unapproved_plan(state: GoalState, decided: Resolution) -> GoalState:
    """Apply a question that ended without approval, by a decision or by expiry: nothing of the plan is done."""
    problem = f"{NOT_APPROVED}: {decided.reason}" if decided.reason else NOT_APPROVED
    return _review_rules(state).denied(_with_plan_withdrawn(state), problem)


def is_yes(answer: str) -> bool:
    """Return True if an answer approves a plan and has no other content: `OK, do it!`."""
    words = "".join(each if each.isalnum() else " " for each in answer.casefold().replace("'", "")).split()
    begins = any(words[: len(yes)] == yes for yes in map(str.split, YES_WORDS))
    return begins and "?" not in answer and FILLER_WORDS.issuperset(words)


def _with_new_plan(state: GoalState, answer: str, setup: Setup) -> GoalState:
    try:
        given = goal_reply_object("goal_plan", answer) if answer.lstrip().startswith(("{", "[")) else None
    except ValueError as error:
        return _with_plan_question(state, _invalid_plan_text(state, error))
    if given is None:
        changed = with_message_to_model(state, f"[Plan sent back by the operator] {answer}\nNothing of it was done.")
        return _with_plan_withdrawn(changed).with_pursuit(unusable=0)
    try:
        after = with_steps(state, steps_in_reply(given), setup)
    except UnusableReply as error:
        return _with_plan_question(state, _invalid_plan_text(state, error))
    changed = with_message_to_model(after, "[Plan given by the operator] It replaces yours.")
    changed = changed.with_note("PlanAdjusted", by=OPERATOR, steps=steps_data(changed.pursuit.open_steps))
    is_judged = state.goal_config.plan_review == "policy"
    return with_plan_to_review(changed) if is_judged else _with_approved_plan(changed)


def _review_question_text(state: GoalState, why: str = "") -> str:
    left, how = _hidden_step_count(state), _review_rules(state).how
    steps = ", ".join(_shown_steps(state))
    if not left:
        return f'Is this plan right{why}? Answer "yes", {how}. {steps}'
    return (
        f"Is this plan right{why}? It is too long to be shown in full. Read it with `orga conversation`, then answer "
        f'"{_full_approval_text(state)}", {how}. {steps}{", and " if steps else ""}{left} more'
    )


def _shown_steps(state: GoalState) -> list[str]:
    """Return the steps that fit into the question, in their order, each whole."""
    shown, room = list[str](), MAX_SHOWN_CHARS
    for step in state.pursuit.open_steps:
        arguments = "" if step.arguments is None else f" {to_json(step.arguments, inf_nan_mode='strings').decode()}"
        after = f" after {', '.join(step.depends_on)}" if step.depends_on else ""
        text = escaped_line(f"{step.id} ({step.skill}{after}): {step.goal}{arguments}")
        room -= len(text)
        if room < 0:
            break
        shown.append(text)
    return shown


def _hidden_step_count(state: GoalState) -> int:
    return len(state.pursuit.open_steps) - len(_shown_steps(state))


def _full_approval_text(state: GoalState) -> str:
    return f"yes to all {len(state.pursuit.open_steps)} steps"


def _with_plan_question(state: GoalState, question: str) -> GoalState:
    return state.with_pursuit(stage="review", question=question, questions=state.pursuit.questions + 1)


def _with_approved_plan(state: GoalState) -> GoalState:
    return state.with_pursuit(stage="execute", question="", terms=None, unusable=0)


def _with_plan_withdrawn(state: GoalState) -> GoalState:
    """Return the state without the plan. No rule decides before the model has."""
    left = tuple(step for step in state.pursuit.steps if step.state != "open" or step.by == OPERATOR)
    stage: GoalPhase = "decide" if any(step.state != "open" for step in left) else "plan"
    return state.with_pursuit(steps=left, due=(), stage=stage, question="", terms=None, is_guided=True)


class _ReviewRules(NamedTuple):
    """The consequences for a plan that is not approved as it is."""

    how: str
    """The possible answers other than "yes", for the question."""
    denied: Callable[[GoalState, str], GoalState]
    answered: Callable[[GoalState, str, Setup], GoalState]


def _with_plan_sent_back(state: GoalState, problem: str) -> GoalState:
    return with_unusable_reply(state, f"{problem}; nothing of it was done")


def _with_goal_ended(state: GoalState, problem: str) -> GoalState:
    """End the goal, because the pipeline would make the same plan again."""
    return with_ending(state, Stop("stuck", problem))


def _with_question_repeated(state: GoalState, _: str, __: Setup) -> GoalState:
    return _with_plan_question(state, _review_question_text(state, f" (it is that of pipeline {state.pipeline})"))


def _invalid_plan_text(state: GoalState, error: Exception) -> str:
    return f"That is no plan ({one_line(str(error), MAX_WHY_CHARS)}). {_review_question_text(state)}"


_MODEL_RULES = _ReviewRules(CHANGE_HINT, _with_plan_sent_back, _with_new_plan)
_PIPELINE_RULES = _ReviewRules(PIPELINE_CHANGE_HINT, _with_goal_ended, _with_question_repeated)


def _review_rules(state: GoalState) -> _ReviewRules:
    return _PIPELINE_RULES if state.pipeline else _MODEL_RULES
