"""A critic's verdict on a draft, read tolerantly and scored by the rubric, and its consequence for the director."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from orga.workflows.decisions.critique import weighted_score
from orga.workflows.decisions.goals.replies import UnusableReply, bounded_line, parsed_number
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.json_text import find_json_object

MAX_REMARKS_CHARS = 4_000

_ROUNDING = 1e-9


class DraftVerdict(NamedTuple):
    """The verdict on one draft."""

    score: float
    """The score by the rubric's weights, from 0 to 1."""
    remarks: str
    """The scores and the requested changes, for the director."""


def parsed_draft_verdict(text: str, pipeline: Pipeline) -> DraftVerdict:
    """Return the verdict in a critic's answer.

    Raises:
        UnusableReply: There is none, or a score is missing or out of range.
    """
    try:
        answer = find_json_object(text, ("scores", *pipeline.rubric))
    except ValueError as error:
        raise UnusableReply(f"give one JSON object: {error}") from None
    scores = _parsed_scores(answer, pipeline)
    critic = pipeline.reviewer
    total = weighted_score(critic, scores)
    listed = ", ".join(f"{name} {_score_text(value)}" for name, value in scores.items())
    feedback = bounded_line(answer.get("feedback"), MAX_REMARKS_CHARS)
    needed = "" if pipeline.fixed_rounds else f" of {_score_text(critic.threshold)}"
    head = f"The draft has {_score_text(total)}{needed} ({listed})."
    return DraftVerdict(total, f"{head}\n{feedback}" if feedback else head)


def _score_text(value: float) -> str:
    """Return a score with only the digits that distinguish it from the threshold."""
    return f"{round(value, 3):g}"


def _parsed_scores(answer: Mapping[str, Any], pipeline: Pipeline) -> dict[str, float]:
    given = cast("Mapping[str, Any]", answer["scores"]) if isinstance(answer.get("scores"), dict) else answer
    found = {name: parsed_number(given.get(name), 1) for name in pipeline.rubric}
    if missing := [name for name, value in found.items() if value is None]:
        raise UnusableReply(f"scores: a number from 0 to 1 is missing: {', '.join(missing)}")
    known = {name: value or 0.0 for name, value in found.items()}
    if wrong := [f"{name} {value:g}" for name, value in known.items() if not 0 <= value <= 1]:
        raise UnusableReply(f"scores: each is from 0 to 1, not {', '.join(wrong)}")
    return known


def best_draft_number(scores: Sequence[float]) -> int:
    """Return the number of the best draft, the latest of equal ones, or 0 if there is none."""
    return max(range(len(scores)), key=lambda index: (scores[index], index)) + 1 if scores else 0


class Convergence(NamedTuple):
    """The consequence of the scores of all drafts so far."""

    what: Literal["again", "done", "stuck"]
    why: str


def convergence(pipeline: Pipeline, scores: Sequence[float]) -> Convergence:
    """Return whether the director is sent back. The first rule that applies counts:

    1. `fixed_rounds`: again until the last round, which is done.
    2. The latest draft reaches the threshold: done.
    3. That was the last round: stuck.
    4. `adaptive_break`: after `min_rounds`, a draft that is not better than the best one before it: stuck.
    5. Otherwise: again.
    """
    rounds, latest, best = len(scores), scores[-1], max(scores)
    if pipeline.fixed_rounds is not None:
        what = "done" if rounds >= pipeline.fixed_rounds else "again"
        return Convergence(what, f"round {rounds} of {pipeline.fixed_rounds}, score {_score_text(latest)}")
    if latest >= pipeline.threshold:
        return Convergence("done", f"score {_score_text(latest)}, {_score_text(pipeline.threshold)} is needed")
    if rounds >= pipeline.rounds:
        why = f"no draft reached {_score_text(pipeline.threshold)} in {rounds} rounds; the best has {_score_text(best)}"
        return Convergence("stuck", why)
    adaptive = pipeline.adaptive_break
    if adaptive is not None and rounds >= adaptive.min_rounds:
        before = max(scores[:-1])
        if latest < before + adaptive.min_improvement - _ROUNDING:
            return Convergence("stuck", f"the drafts get no better: {_score_text(latest)} after {_score_text(before)}")
    return Convergence("again", f"score {_score_text(latest)}, {_score_text(pipeline.threshold)} is needed")
