"""A critic's verdict: read strictly from what its model wrote; what counts is the score that is computed here."""

from dataclasses import dataclass, field
from math import fsum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workflows.types.answer_json import answer_json
from workflows.types.critic import Critic
from workflows.types.input import problems
from workflows.types.messages import Reply
from workflows.types.result import StopReason
from workflows.types.usage import Usage, UsageTotals

SCORE_DIGITS = 6
"""So that 0.1 + 0.2 reaches a threshold of 0.3."""

MAX_PROBLEM_CHARS = 500

Score = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Assessment:
    """What a critic says, or why it could not say anything."""

    approved: bool
    reviewer: str
    """`model:NAME` or `person:NAME`."""
    feedback: str = ""
    score: float | None = None
    dimensions: dict[str, float] = field(default_factory=dict[str, float])
    says_approved: bool | None = None
    """The model's own label, which decides nothing."""
    failure: str = ""
    """Why there is no review."""
    limit: StopReason | None = None
    """The budget that there is no review for."""
    is_asked: bool = False
    """Whether a person was asked to decide in a model's place."""
    usage: Usage | None = None
    """Of the model calls for it."""

    @property
    def is_by_person(self) -> bool:
        """Whether a person was asked."""
        return self.reviewer.startswith("person")


class _Verdict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    scores: dict[str, Score]
    feedback: str
    approved: bool


def assessment(reply: Reply, critic: Critic, reviewer: str) -> Assessment:
    """Return the verdict that a model's reply is.

    Raises:
        ValueError: It is none, with what is wrong, for the model to correct.
    """
    if reply.finish not in {"stop", "tool_calls"}:
        raise ValueError(f"the reply ended early ({reply.finish})")
    verdict = _verdict(reply.text)
    missing = [name for name in critic.rubric if name not in verdict.scores]
    unknown = [name for name in verdict.scores if name not in critic.rubric]
    if missing or unknown:
        wrong = [f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
        raise ValueError(f"scores: {'; '.join(wrong)}"[:MAX_PROBLEM_CHARS])
    total = score(critic, verdict.scores)
    return Assessment(
        approved=total >= critic.threshold,
        reviewer=reviewer,
        feedback=verdict.feedback.strip(),
        score=total,
        dimensions={name: verdict.scores[name] for name in critic.rubric},
        says_approved=verdict.approved,
    )


def score(critic: Critic, scores: dict[str, float]) -> float:
    """Return the mean of the scores by the rubric's weights, from 0 to 1."""
    weights = {name: dimension.weight for name, dimension in critic.rubric.items()}
    total = fsum(weights[name] * scores[name] for name in weights) / fsum(weights.values())
    return min(round(total, SCORE_DIGITS), 1.0)


def summed(before: Usage | None, usage: Usage) -> Usage:
    """Return what both model calls used."""
    if before is None:
        return usage
    totals = UsageTotals().plus(before, None).plus(usage, None)
    return Usage(**{name: getattr(totals, name) for name in Usage.model_fields})


def _verdict(text: str) -> _Verdict:
    value = answer_json(text)
    try:
        return _Verdict.model_validate(value)
    except ValidationError as error:
        raise ValueError("; ".join(problems(error))[:MAX_PROBLEM_CHARS]) from None
