"""How a goal comes along: quality from scores, their trend, streaks, and what follows without asking a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.goals.plans import ready_steps
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.decisions.tool_calls.repeated_calls import similarity
from orga.workflows.types.context import text_digest
from orga.workflows.types.goals.input import GoalConfig
from orga.workflows.types.goals.pursuit import PlanStep, Pursuit, Quality
from orga.workflows.types.messages import ToolCall

MIN_GOOD_SCORE, MIN_PARTIAL_SCORE = 3.5, 2.0
"""Mean scores from which a step is good, and of some use."""

TREND_ROUNDS = 3
"""Rounds that a trend is made of."""

MIN_TREND_SLOPE = 0.3
"""Beyond which it is no longer stable."""

UNFINISHED_STOPS = frozenset({"completed", "stuck"})
"""Endings that are no limit: what people say while one is told takes it back."""

MAX_REPEATED_ROUNDS = 3
"""Rounds with equal calls after which a goal is stuck. Nearly equal calls count only if every one of them failed."""

MIN_SIMILARITY = 0.95
MAX_ADJUSTS = 3
"""Plans in a row that were changed at high confidence."""

_SIGNATURE_CHARS = 500


def quality_from_mean(mean: float) -> Quality:
    """Return what a mean score stands for; the model's own label decides nothing."""
    if mean >= MIN_GOOD_SCORE:
        return "good"
    return "partial" if mean >= MIN_PARTIAL_SCORE else "failed"


class Trend(NamedTuple):
    """Of the latest rounds."""

    average: float
    slope: float
    """What each round adds; 0 of a single one."""
    word: Literal["improving", "stable", "DEGRADING"]


def score_trend(means: Sequence[float]) -> Trend | None:
    """Return the trend of the last three rounds; None where none was evaluated."""
    latest = means[-TREND_ROUNDS:]
    if not latest:
        return None
    slope = (latest[-1] - latest[0]) / max(len(latest) - 1, 1)
    rounded = round(slope, 6)
    word = "improving" if rounded > MIN_TREND_SLOPE else "DEGRADING" if rounded < -MIN_TREND_SLOPE else "stable"
    return Trend(round(sum(latest) / len(latest), 3), round(slope, 3), word)


def round_signature(calls: Sequence[ToolCall]) -> str:
    """Return what a round is compared by, whatever the order of its calls and of their arguments.

    A digest, by which equal rounds are told, and behind it words, by which nearly equal ones are.
    """
    digest = text_digest(" ".join(sorted(map(call_fingerprint, calls))))[:16]
    made = sorted(f"{call.name} {to_json(sorted(call.arguments.items())).decode()}" for call in calls)
    return f"{digest} {'; '.join(made)}"[:_SIGNATURE_CHARS]


def is_repeating_rounds(pursuit: Pursuit) -> bool:
    """Return whether the latest rounds made the same calls, or nearly the same ones and all of them failed.

    Pages of a file, numbered files and dates make calls that are nearly equal as texts, and each may be wanted.
    """
    recent = pursuit.recent[-MAX_REPEATED_ROUNDS:]
    if len(recent) < MAX_REPEATED_ROUNDS:
        return False
    if len(set(recent)) == 1:
        return True
    return pursuit.errors >= MAX_REPEATED_ROUNDS and all(map(_is_alike, recent, recent[1:]))


def stuck_reason(pursuit: Pursuit, config: GoalConfig) -> str:
    """Return why the goal gets nowhere, or "": each count ends it at `stuck_threshold`."""
    most = config.stuck_threshold
    if pursuit.errors >= most:
        return f"every step failed, {pursuit.errors} rounds in a row"
    if pursuit.bad >= most:
        return f"nothing of use came of {pursuit.bad} rounds in a row"
    if pursuit.unusable >= most:
        return f"{pursuit.unusable} replies in a row could not be used"
    if pursuit.adjusted >= MAX_ADJUSTS:
        return f"the plan was changed {pursuit.adjusted} times in a row, at high confidence"
    if is_repeating_rounds(pursuit):
        return f"the same calls, {MAX_REPEATED_ROUNDS} rounds in a row"
    return ""


def _is_alike(one: str, other: str) -> bool:
    return similarity(one.partition(" ")[2], other.partition(" ")[2]) >= MIN_SIMILARITY


RuleDecision = Literal["continue", "done", "stuck"]


def decision_by_rules(pursuit: Pursuit, config: GoalConfig) -> RuleDecision | None:
    """Return what is next where that needs no model. The first that holds counts:

    1. a streak, going round: stuck;
    2. people said something, or a step of the latest round failed: the model;
    3. nothing is open: done where the latest round was good and no step of the plan failed, else the model;
    4. a step can be done: continue; else the model.
    """
    if stuck_reason(pursuit, config):
        return "stuck"
    latest = pursuit.due_steps
    if pursuit.is_guided or any(step.state == "failed" for step in latest):
        return None
    if not pursuit.open_steps:
        is_good = all(step.scores is not None and quality_from_mean(step.scores.mean) == "good" for step in latest)
        return "done" if latest and is_good and not _has_unrepaired_failure(pursuit) else None
    return "continue" if ready_steps(pursuit.steps, 1) else None


def _has_unrepaired_failure(pursuit: Pursuit) -> bool:
    """Return whether a step failed that no later one made up for."""
    return any(step.state == "failed" for step in pursuit.steps)


def result_confidence(steps: Sequence[PlanStep], said: float | None = None) -> float:
    """Return how far the result can be relied on: the part of its steps that is done, by how well they were done.

    What the model said of itself can only lower it.
    """
    if not steps:
        return 0.0
    worth = [(step.scores.mean - 1) / 4 for step in steps if step.state == "done" and step.scores is not None]
    measured = sum(worth) / len(steps)
    return round(measured if said is None else min(measured, said), 3)
