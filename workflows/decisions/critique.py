"""Reviews by critics: what is reviewed, how a verdict is read and scored, its texts, and its consequences."""

from collections.abc import Mapping
from datetime import datetime
from math import fsum
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from orga.workflows.decisions.conversation import with_message_to_model, with_recorded_reply
from orga.workflows.decisions.limits import stop_reason
from orga.workflows.decisions.observe import with_answer
from orga.workflows.decisions.tool_calls.calls import answered_unrun_outcome
from orga.workflows.decisions.tool_calls.repeated_calls import with_streaks
from orga.workflows.types.control import Stop, StopReason
from orga.workflows.types.critics import Critic, CriticReply
from orga.workflows.types.json_text import parsed_answer_json
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.record import validation_problems
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip, delimited_text, to_json_text
from orga.workflows.types.tool_calls.recovery import Outcome


def review_subject(critic: Critic, call: ToolCall) -> tuple[str, str]:
    """Return the name of the reviewed tool, and the reviewed text.

    A critic without tools reviews answers. The name is "" then, and `call` ends the run with the reviewed output.
    """
    if not critic.tools:
        return "", str(call.arguments.get("output", ""))
    return call.name, to_json_text(call.arguments)


SCORE_DIGITS = 6
"""Decimal places of a score. Without rounding, 0.1 + 0.7 would not reach a threshold of 0.8."""

MAX_PROBLEM_CHARS = 500


class Assessment(NamedTuple):
    """A critic's verdict, or the reason why there is none."""

    approved: bool
    reviewer: str
    """`model:NAME` or `person:NAME`."""
    feedback: str = ""
    score: float | None = None
    dimensions: Mapping[str, float] = {}
    says_approved: bool | None = None
    """The model's own opinion. It decides nothing."""
    failure: str = ""
    limit: StopReason | None = None
    """The budget that is used up, so that there is no review."""
    is_asked: bool = False
    """True if a person was asked although the critic has a rubric for a model."""
    usage: Usage | None = None

    @property
    def is_by_person(self) -> bool:
        return self.reviewer.startswith("person")


def parsed_assessment(reply: Reply, critic: Critic, reviewer: str) -> Assessment:
    """Return the verdict in a reply. Raise ValueError, with a text for the model, if there is none."""
    if reply.finish not in {"stop", "tool_calls"}:
        raise ValueError(f"the reply ended early ({reply.finish})")
    value = parsed_answer_json(reply.text)
    try:
        verdict = CriticReply.model_validate(value)
    except ValidationError as error:
        raise ValueError("; ".join(validation_problems(error))[:MAX_PROBLEM_CHARS]) from None
    missing = [name for name in critic.rubric if name not in verdict.scores]
    unknown = [name for name in verdict.scores if name not in critic.rubric]
    wrong = [f"missing: {', '.join(missing)}"] if missing else []
    wrong += [f"unknown: {', '.join(unknown)}"] if unknown else []
    if wrong:
        raise ValueError(f"scores: {'; '.join(wrong)}"[:MAX_PROBLEM_CHARS])
    total = weighted_score(critic, verdict.scores)
    return Assessment(
        approved=total >= critic.threshold,
        reviewer=reviewer,
        feedback=verdict.feedback.strip(),
        score=total,
        dimensions={name: verdict.scores[name] for name in critic.rubric},
        says_approved=verdict.approved,
    )


def weighted_score(critic: Critic, scores: dict[str, float]) -> float:
    """Return the mean of the scores, weighted by the rubric, from 0 to 1."""
    weights = {name: dimension.weight for name, dimension in critic.rubric.items()}
    total = fsum(weights[name] * scores[name] for name in weights) / fsum(weights.values())
    return min(round(total, SCORE_DIGITS), 1.0)


def summed_usage(before: Usage | None, usage: Usage) -> Usage:
    if before is None:
        return usage
    return before.with_differences(
        input_tokens=before.input_tokens + usage.input_tokens,
        output_tokens=before.output_tokens + usage.output_tokens,
        cached_input_tokens=before.cached_input_tokens + usage.cached_input_tokens,
        thinking_tokens=before.thinking_tokens + usage.thinking_tokens,
        estimated=before.estimated or usage.estimated,
    )


MAX_FEEDBACK_BYTES = 4_000
MAX_DETAIL_CHARS = 300


def rejection_text(critic: Critic, assessment: Assessment, salt: str) -> str:
    """Return a rejection's text for the model. Feedback that a model wrote is delimited as untrusted data."""
    remarks = clip(assessment.feedback, MAX_FEEDBACK_BYTES)
    if assessment.is_by_person:
        return "A person reviewed it and rejected it" + (f": {remarks}" if remarks else ".")
    scores = ", ".join(f"{name} {value:.2f}" for name, value in assessment.dimensions.items())
    text = f"The critic {critic.name} gives it {_score_text(critic, assessment)} ({scores})."
    return text + (f"\n{delimited_text(remarks, f'remarks of {critic.name}', salt)}" if remarks else "")


def rounds_left_text(critic: Critic, rounds_used: int) -> str:
    """Return the text for the model about the rounds that are left, including the next one."""
    left = critic.max_rounds - rounds_used
    return "This is the last time." if left <= 1 else f"You have {left} more tries."


def escalation_reason(critic: Critic, assessment: Assessment) -> str:
    return f"{_score_text(critic, assessment)} after {critic.max_rounds} revisions{_colon_line(assessment.feedback)}"


def critic_stop(critic: Critic, assessment: Assessment) -> Stop:
    if assessment.failure:
        stop = Stop(assessment.limit or "error", f"no review: {assessment.failure}")
    elif assessment.is_by_person and assessment.is_asked:
        person = assessment.reviewer.removeprefix("person:")
        stop = Stop("escalated", f"{person} rejected it{_colon_line(assessment.feedback)}")
    else:
        stop = Stop("error", escalation_reason(critic, assessment))
    return Stop(stop.reason, f"critic {critic.name}: {stop.detail}"[:MAX_DETAIL_CHARS])


def unapproved_remark(critic: Critic, assessment: Assessment) -> str:
    """Return the remark on an answer that is accepted without a critic's approval, or ""."""
    if assessment.failure:
        return f"not reviewed by critic {critic.name}: {assessment.failure}"
    if assessment.approved:
        return ""
    return f"accepted although critic {critic.name} gave it {_score_text(critic, assessment)}"


def _score_text(critic: Critic, assessment: Assessment) -> str:
    if assessment.score is None:
        return "a no"
    return f"{assessment.score:.2f} of the {critic.threshold:.2f} that are needed"


def _colon_line(text: str) -> str:
    flat = " ".join(text.split())
    return f": {flat}" if flat else ""


Conclusion = Literal["accepted", "revise", "asked", "ended", "skipped"]
"""`accepted`: it counts. `revise`: the model tries again. `asked`: a person decides. `ended`: the run ends. `skipped`:
a call that the model cannot revise, such as a substitute or a requeued one, is not made.
"""


def budget_stop(state: AgentState, now: datetime) -> Stop | None:
    """Return the limit that forbids one more model call, or None. Iterations, streaks and excess calls do not count."""
    # `with_streaks` without names ends all streaks
    fresh = with_streaks(state.with_control(iteration=0).with_budget(over_budget=0))
    return stop_reason(fresh, state.config, now)


def rounds_used(state: AgentState, critic: Critic) -> int:
    return state.critiques.get(critic.name, 0)


def review_conclusion(state: AgentState, critic: Critic, assessment: Assessment) -> Conclusion:
    """Return the consequence of a verdict. Once the rounds are used up, the config decides."""
    if assessment.approved:
        return "accepted"
    if assessment.failure:
        return "ended"
    if rounds_used(state, critic) < critic.max_rounds:
        return "revise"
    if critic.on_exhausted == "accept":
        return "accepted"
    return "asked" if critic.on_exhausted == "ask" and not assessment.is_by_person else "ended"


def with_round(state: AgentState, critic: Critic, *, is_sent_back: bool) -> AgentState:
    """Count a round if the work is sent back to the model. Otherwise reset the critic's rounds to zero."""
    rest = {name: rounds for name, rounds in state.critiques.items() if name != critic.name}
    if is_sent_back:
        rest[critic.name] = rounds_used(state, critic) + 1
    return state if rest == state.critiques else state.with_dialogue(critiques=rest)


def with_critique_note(
    state: AgentState,
    critic: Critic,
    target: str,
    assessment: Assessment,
    then: Conclusion,
    *,
    place: str = "",
    call_id: str = "",
) -> AgentState:
    """Add a note about a verdict to the journal, with the place of its subject and, for a call, its id."""
    data: dict[str, Any] = {
        "kind": "critic",
        "critic": critic.name,
        "place": place,
        "target": target,
        "score": assessment.score,
        "approved": assessment.approved and not assessment.failure,
        "dimensions": assessment.dimensions,
        "reviewer": assessment.reviewer,
        "round": rounds_used(state, critic),
        "then": then,
    }
    if assessment.says_approved is not None:
        data["says_approved"] = assessment.says_approved
    if assessment.usage is not None:
        data["usage"] = assessment.usage.model_dump()
    texts = {"feedback": assessment.feedback, "error": assessment.failure, "call_id": call_id}
    return state.with_note("CritiqueEvaluated", **data, **{key: text for key, text in texts.items() if text})


def with_rejected_answer(state: AgentState, reply: Reply, critic: Critic, assessment: Assessment) -> AgentState:
    """Add an answer that a critic rejected. The model learns why, so that it can do better."""
    hint = f"Revise your answer and give all of it again. {rounds_left_text(critic, rounds_used(state, critic))}"
    after = _with_unaccepted_answer(state, reply, f"{rejection_text(critic, assessment, state.origin)}\n{hint}")
    return with_round(with_streaks(after.with_dialogue(repairs=0)), critic, is_sent_back=True)


def with_unreviewed_answer(state: AgentState, reply: Reply, critic: Critic, assessment: Assessment) -> AgentState:
    """Add an answer that was not reviewed, or rejected for good, and end the run. The answer is not the output."""
    stop = critic_stop(critic, assessment)
    return _with_unaccepted_answer(state, reply, stop.detail).with_control(stop=stop)


def with_accepted_answer(state: AgentState, reply: Reply, remarks: tuple[str, ...]) -> AgentState:
    """Add an answer that the critics accepted. The ending's detail has the remarks about missing approval."""
    after = with_answer(state, reply)
    if not remarks or after.stop is None:
        return after
    return after.with_control(stop=Stop(after.stop.reason, "; ".join(remarks)[:MAX_DETAIL_CHARS]))


def rejected_call_outcome(state: AgentState, call: ToolCall, critic: Critic, assessment: Assessment) -> Outcome:
    hint = f"Call it otherwise, or go on without it. {rounds_left_text(critic, rounds_used(state, critic))}"
    return answered_unrun_outcome(call, f"[Not run] {rejection_text(critic, assessment, call.call_id)}\n{hint}")


def _with_unaccepted_answer(state: AgentState, reply: Reply, why: str) -> AgentState:
    after = with_message_to_model(with_recorded_reply(state, reply), f"[Answer not accepted] {why}")
    return after.with_dialogue(partial="")
