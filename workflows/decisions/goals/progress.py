"""Progress of a goal: quality from scores, their trend, streaks, and decisions without a model.

This module also has changes of a goal's state that several decisions share: a new plan, an unusable reply, an ending.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.conversation import with_message_to_model
from orga.workflows.decisions.goals.plans import (
    available_agents,
    available_skills,
    parsed_plan,
    ready_steps,
    valued_skills,
)
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.decisions.tool_calls.repeated_calls import similarity
from orga.workflows.types.context import text_digest
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.goal_input import GoalConfig
from orga.workflows.types.goals.pursuit import MAX_KEPT_STEPS, GoalState, PlanStep, Pursuit, Quality
from orga.workflows.types.messages import UNUSABLE_MARKER, ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line

MIN_GOOD_SCORE, MIN_PARTIAL_SCORE = 3.5, 2.0
"""The lowest mean scores of a good and of a partly useful step."""

TREND_ROUNDS = 3

MIN_TREND_SLOPE = 0.3
"""Change of the mean score per round. A trend with a larger change is not stable."""

UNFINISHED_STOPS = frozenset({"completed", "stuck"})
"""Endings other than limits. Guidance during the final answer withdraws such an ending."""

MAX_REPEATED_ROUNDS = 3
"""Rounds with equal calls after which a goal is stuck. Nearly equal calls count only if every one of them failed."""

MIN_SIMILARITY = 0.95
MAX_ADJUSTS = 3
"""Changes of the plan in a row, at high confidence, after which a goal is stuck."""

_SIGNATURE_CHARS = 500


def quality_from_mean(mean: float) -> Quality:
    if mean >= MIN_GOOD_SCORE:
        return "good"
    return "partial" if mean >= MIN_PARTIAL_SCORE else "failed"


class Trend(NamedTuple):
    average: float
    slope: float
    """The change per round. 0 for a single round."""
    word: Literal["improving", "stable", "DEGRADING"]


def score_trend(means: Sequence[float]) -> Trend | None:
    latest = means[-TREND_ROUNDS:]
    if not latest:
        return None
    slope = (latest[-1] - latest[0]) / max(len(latest) - 1, 1)
    rounded = round(slope, 6)
    word = "stable"
    if abs(rounded) > MIN_TREND_SLOPE:
        word = "improving" if rounded > 0 else "DEGRADING"
    return Trend(round(sum(latest) / len(latest), 3), round(slope, 3), word)


def round_signature(calls: Sequence[ToolCall]) -> str:
    """Return a text for comparing rounds, independent of the order of calls and of arguments.

    It begins with a digest, which shows equal rounds. The words after it show nearly equal ones.
    """
    digest = text_digest(" ".join(sorted(map(call_fingerprint, calls))))[:16]
    call_texts = sorted(f"{call.name} {to_json(sorted(call.arguments.items())).decode()}" for call in calls)
    return f"{digest} {'; '.join(call_texts)}"[:_SIGNATURE_CHARS]


def is_repeating_rounds(pursuit: Pursuit) -> bool:
    """Return True if the latest rounds made the same calls, or if they made nearly the same calls and all failed.

    Nearly equal calls that succeed do not count. Each may be useful: they may read pages of a file, or several dates.
    """
    recent = pursuit.recent[-MAX_REPEATED_ROUNDS:]
    if len(recent) < MAX_REPEATED_ROUNDS:
        return False
    if len(set(recent)) == 1:
        return True
    words = [signature.partition(" ")[2] for signature in recent]
    is_alike = all(similarity(earlier, later) >= MIN_SIMILARITY for earlier, later in pairwise(words))
    return pursuit.errors >= MAX_REPEATED_ROUNDS and is_alike


def stuck_reason(pursuit: Pursuit, config: GoalConfig, problem: str = "") -> str:
    """Return why the goal is stuck, or "". Most counts have the limit `stuck_threshold`."""
    most = config.stuck_threshold
    if pursuit.errors >= most:
        return f"every step failed, {pursuit.errors} rounds in a row"
    if pursuit.bad >= most:
        return f"{pursuit.bad} rounds in a row had no useful result"
    if pursuit.unusable >= most:
        last = f"; the last one: {problem}" if problem else ""
        return f"{pursuit.unusable} replies in a row could not be used{last}"
    if pursuit.adjusted >= MAX_ADJUSTS:
        return f"the plan was changed {pursuit.adjusted} times in a row, at high confidence"
    if is_repeating_rounds(pursuit):
        return f"the same calls, {MAX_REPEATED_ROUNDS} rounds in a row"
    return ""


RuleDecision = Literal["continue", "done", "stuck"]


def decision_by_rules(pursuit: Pursuit, config: GoalConfig) -> RuleDecision | None:
    """Return the next action if no model is needed. The first rule that applies counts:

    1. A streak, or repeated rounds: stuck.
    2. There is guidance, or a step of the latest round failed: the model decides.
    3. No step is open: done if the latest round was good and no step of the plan failed, else the model decides.
    4. A step is ready: continue, else the model decides.
    """
    if stuck_reason(pursuit, config):
        return "stuck"
    latest = pursuit.due_steps
    if pursuit.is_guided or any(step.state == "failed" for step in latest):
        return None
    if not pursuit.open_steps:
        is_good = all(step.scores is not None and quality_from_mean(step.scores.mean) == "good" for step in latest)
        has_failure = any(step.state == "failed" for step in pursuit.steps)
        return "done" if latest and is_good and not has_failure else None
    return "continue" if ready_steps(pursuit.steps, 1) else None


def result_confidence(steps: Sequence[PlanStep], own: float | None = None) -> float:
    """Return the confidence in the result: the share of its steps that are done, weighted by their scores.

    The model's own confidence can only lower it.
    """
    if not steps:
        return 0.0
    means = [step.scores.mean for step in steps if step.state == "done" and step.scores is not None]
    measured = sum((mean - 1) / 4 for mean in means) / len(steps)  # scores are from 1 to 5
    return round(measured if own is None else min(measured, own), 3)


MAX_PROBLEM_CHARS = 300
"""Characters of the last reply's problem in the reason of an ending."""


def without_plan(state: GoalState) -> GoalState:
    """Return the state without open steps, except those that a person has added."""
    finished = tuple(step for step in state.pursuit.steps if step.state != "open")[-MAX_KEPT_STEPS:]
    return state.with_pursuit(steps=(*finished, *state.pursuit.open_steps_of_people), due=())


def with_steps(state: GoalState, listed: object, setup: Setup) -> GoalState:
    """Replace all open steps, except those of a person. Raise UnusableReply with all problems of the new steps."""
    rest = without_plan(state)
    most = state.goal_config.max_plan_steps
    before, skills = rest.pursuit.steps, available_skills(setup)
    steps = parsed_plan(listed, skills, most, before, agents=available_agents(setup), valued=valued_skills(setup))
    longest = max(state.pursuit.longest, len(steps) + len(rest.pursuit.open_steps))
    return rest.with_pursuit(steps=(*before, *steps), longest=longest)


def with_unusable_reply(state: GoalState, problem: str) -> GoalState:
    """Add feedback about an unusable reply. Too many in a row end the goal."""
    after = state.with_pursuit(unusable=state.pursuit.unusable + 1)
    after = with_message_to_model(after, f"{UNUSABLE_MARKER}{problem}")
    return with_ending_if_stuck(after, problem)


def with_ending_if_stuck(state: GoalState, problem: str = "") -> GoalState:
    """End the goal if it makes no progress. `problem` is what was wrong with the last reply."""
    why = stuck_reason(state.pursuit, state.goal_config, one_line(problem, MAX_PROBLEM_CHARS))
    return with_ending(state, Stop("stuck", why)) if why else state


def with_ending(state: GoalState, ending: Stop) -> GoalState:
    return state.with_pursuit(ending=ending, stage="summarise")


def steps_data(steps: Sequence[PlanStep]) -> list[dict[str, object]]:
    return [
        {"id": step.id, "skill": step.skill, "goal": step.goal[:120], "depends_on": list(step.depends_on)}
        for step in steps
    ]
