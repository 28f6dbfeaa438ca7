"""Critics: what one looks at, how its verdict is read and scored, and what is said of it."""

from collections.abc import Mapping
from math import fsum
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from orga.workflows.decisions.saga import steps_of
from orga.workflows.types.checks import problems
from orga.workflows.types.context import Setup
from orga.workflows.types.control import StopReason
from orga.workflows.types.critics import Critic
from orga.workflows.types.json_text import answer_json
from orga.workflows.types.loop_tools import loop_tool
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.text import clip
from orga.workflows.types.tools import matches
from orga.workflows.types.untrusted import delimited
from orga.workflows.types.usage import Usage, UsageTotals


def answer_critics(setup: Setup) -> tuple[Critic, ...]:
    """Return the critics of final answers, in the order of the config."""
    return tuple(critic for critic in setup.critics if not critic.tools)


def reviews(critic: Critic, call: ToolCall) -> bool:
    """Return whether a critic has to see a call; one of answers sees what ends the run with one."""
    if not critic.tools:
        return loop_tool(call.name).is_answer
    return any(matches(name, critic.tools) for name in (call.name, *_named_in_saga(call)))


def subject_of(critic: Critic, call: ToolCall) -> tuple[str, str]:
    """Return the tool that is called, or "" for an answer, and the text that is reviewed."""
    if not critic.tools:
        return "", str(call.arguments.get("output", ""))
    return call.name, to_json(call.arguments, inf_nan_mode="strings").decode()


def _named_in_saga(call: ToolCall) -> list[str]:
    if not loop_tool(call.name).is_plan:
        return []
    try:
        steps = steps_of(call)
    except ValueError:  # then it is not begun
        return []
    return [action.tool for step in steps for action in (step, step.compensation) if action is not None]


SCORE_DIGITS = 6
"""So that 0.1 + 0.2 reaches a threshold of 0.3."""

MAX_PROBLEM_CHARS = 500

Score = Annotated[float, Field(ge=0, le=1)]


class Assessment(NamedTuple):
    """What a critic says, or why it could not say anything."""

    approved: bool
    reviewer: str
    """`model:NAME` or `person:NAME`."""
    feedback: str = ""
    score: float | None = None
    dimensions: Mapping[str, float] = {}
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


MAX_FEEDBACK_BYTES = 4_000
MAX_DETAIL_CHARS = 300


def told(critic: Critic, found: Assessment, salt: str) -> str:
    """Return a rejection as the model is told it. A model's feedback is data: it may say what it was made to say."""
    remarks = clip(found.feedback, MAX_FEEDBACK_BYTES)
    if found.is_by_person:
        return "A person who reviewed it said no" + (f": {remarks}" if remarks else ".")
    scores = ", ".join(f"{name} {value:.2f}" for name, value in found.dimensions.items())
    text = f"The critic {critic.name} gives it {_score(critic, found)} ({scores})."
    return text + (f"\n{delimited(remarks, f'remarks of {critic.name}', salt)}" if remarks else "")


def tries(critic: Critic, rounds_used: int) -> str:
    """Return what the model is told of the rounds that it has left, of which the next is one."""
    left = critic.max_rounds - rounds_used
    return "This is the last time." if left <= 1 else f"You have {left} more tries."


def why_asked(critic: Critic, found: Assessment) -> str:
    """Return why the rounds that are used up were not enough."""
    return f"{_score(critic, found)} after {critic.max_rounds} revisions{_one_line(found.feedback)}"


def ending(critic: Critic, found: Assessment) -> tuple[StopReason, str]:
    """Return the end of a run whose critic lets nothing through."""
    if found.failure:
        reason, detail = found.limit or "error", f"no review: {found.failure}"
    elif found.is_by_person and found.is_asked:
        reason, detail = "escalated", f"{found.reviewer.removeprefix('person:')} said no{_one_line(found.feedback)}"
    else:
        reason, detail = "error", why_asked(critic, found)
    return reason, f"critic {critic.name}: {detail}"[:MAX_DETAIL_CHARS]


def remark(critic: Critic, found: Assessment) -> str:
    """Return what is said of an answer that counts although no critic approved it, or ""."""
    if found.failure:
        return f"not reviewed by critic {critic.name}: {found.failure}"
    return "" if found.approved else f"accepted although critic {critic.name} gave it {_score(critic, found)}"


def _score(critic: Critic, found: Assessment) -> str:
    return "a no" if found.score is None else f"{found.score:.2f} of the {critic.threshold:.2f} that are needed"


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return f": {flat}" if flat else ""
