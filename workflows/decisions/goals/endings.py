"""The public views of a goal, the answer of a goal that ends early, and what is delivered at its end."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from orga.workflows.decisions.goals.pipelines import best_draft_answer
from orga.workflows.decisions.goals.progress import quality_from_mean, score_trend
from orga.workflows.decisions.goals.pursue import goal_confidence
from orga.workflows.decisions.goals.review import with_end_withdrawn
from orga.workflows.decisions.limits import LIMIT_REASONS, stop_reason
from orga.workflows.decisions.recall import call_behalf
from orga.workflows.decisions.result import agent_result, agent_run_details, agent_status, with_all_keys
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.deliveries import (
    MAX_ANSWER_BYTES,
    Channel,
    Delivered,
    DeliveryRequest,
    full_answer_location,
)
from orga.workflows.types.goals.pursuit import GoalResult, GoalState, GoalStatus, PlanStep, ShownPlan, ShownStep
from orga.workflows.types.knowledge import StepOutput
from orga.workflows.types.text import clip, clip_json, known_names_hint, markdown_code, one_line

FINDING_BYTES = 2_000
"""Bytes of each result in an answer that no model writes."""

WHY_CHARS = 120

OUTPUT_BYTES = 2_000
"""Bytes of a step's output that is stored as evidence."""

_NO_END = 10**9
"""More rounds than any goal has."""


def goal_stop(state: GoalState, now: datetime, *, counts_rounds: bool) -> Stop | None:
    """Return why the goal ends now, or None. One model call is reserved for the answer.

    `counts_rounds` is only true before a new round: the limit of rounds ends a goal at no other point.
    """
    config = state.config if counts_rounds else state.config.with_raised({"max_iterations": _NO_END})
    if (stop := stop_reason(state, config, now)) is not None:
        return stop
    most = config.max_model_calls
    if most is not None and state.usage.model_calls >= most - 1:
        return Stop("max_iterations", f"limit of {most} model calls")
    return None


def can_be_summarised(state: GoalState, now: datetime) -> bool:
    config = state.config.with_raised({"max_iterations": _NO_END})
    return stop_reason(state.with_failures(denials={}, invalid={}), config, now) is None


def with_end_postponed(state: GoalState, now: datetime) -> GoalState:
    """Return the state that continues if people have raised the limit that would end it."""
    ending = state.pursuit.ending
    is_ending_at_limit = ending is not None and ending.reason in LIMIT_REASONS
    has_other_stop = state.stop is not None and state.stop.reason != "completed"
    if has_other_stop or not is_ending_at_limit:
        return state
    after = state.with_control(stop=None).with_task(output="")
    is_raised = goal_stop(after, now, counts_rounds=True) is None
    return with_end_withdrawn(after) if is_raised else state


def best_effort_answer(state: GoalState, ending: Stop) -> str:
    """Return the findings of a goal whose answer no model writes. If there are none, return why it ended."""
    if draft := best_draft_answer(state, ending):
        return draft
    findings = [_finding_text(state, step) for step in state.pursuit.steps if step.state == "done"]
    unfinished = [_unfinished_step_text(step) for step in state.pursuit.steps if step.state != "done"]
    not_done = f"\n\nNot done: {', '.join(unfinished)}." if unfinished else ""
    if not findings:
        return empty_result_text(ending) + not_done
    head = f"{_early_end_text(ending)}. Confidence {goal_confidence(state):.2f}. What was found until then:"
    return "\n\n".join([head, *findings]) + not_done


def empty_result_text(ending: Stop) -> str:
    return f"{_early_end_text(ending)}. Nothing was done."


def _early_end_text(ending: Stop) -> str:
    detail = f" ({one_line(ending.detail, 200)})" if ending.detail else ""
    return f"The goal ended early: {ending.reason}{detail}"


def _finding_text(state: GoalState, step: PlanStep) -> str:
    output = step_result_text(state, step)
    text = step.summary if not output else clip(output, FINDING_BYTES)
    worth = "" if step.scores is None else f"; {quality_from_mean(step.scores.mean)}, {step.scores.mean:.1f} of 5"
    return f"- {step.id}: {step.goal} ({step.source}{worth})\n{text}".rstrip()


def _unfinished_step_text(step: PlanStep) -> str:
    why = one_line(step.error or step.summary, WHY_CHARS)
    return f"{step.id} (failed{f': {why}' if why else ''})" if step.state == "failed" else step.id


def step_outputs(state: GoalState) -> tuple[StepOutput, ...]:
    done = [step for step in state.pursuit.steps if step.state == "done"]
    texts = [(step, step_result_text(state, step) or step.summary) for step in done]
    return tuple(
        StepOutput(step=step.id, source=step.source, text=clip(text, OUTPUT_BYTES)) for step, text in texts if text
    )


def has_done_step(ended: GoalResult) -> bool:
    """Return True if a step is done. A goal without results has nothing for the next attempt to plan with."""
    return any(step.status == "done" for step in ended.steps)


def step_result_text(state: GoalState, step: PlanStep) -> str:
    course = state.pursuit.course
    if course and (output := course.outputs.get(step.id)):
        return output
    return next((m.text for m in state.conversation.messages if m.role == "tool" and m.call_id == step.call_id), "")


def goal_details(state: GoalState, waits: Sequence[str] = ()) -> str:
    """Return the current details of a goal in Markdown: those of an agent's run, and its steps."""
    lines = [f"- {step.state}: {markdown_code(one_line(f'{step.id} {step.skill}'))}" for step in state.pursuit.steps]
    return "\n".join([agent_run_details(state, waits), *lines])


def shown_step(step: PlanStep) -> ShownStep:
    if step.scores is not None:
        quality, score = quality_from_mean(step.scores.mean), round(step.scores.mean, 3)
    else:
        quality, score = "" if step.score is None else step.label, step.score
    return ShownStep(
        id=step.id,
        goal=step.goal,
        skill=step.skill,
        depends_on=step.depends_on,
        status=step.state,
        attempts=step.attempts,
        quality=quality,
        score=score,
        scores=step.scores,
        output=step.place,
        source=step.source,
        summary=step.summary,
        error=step.error,
    )


def goal_result(state: GoalState, stop: Stop, now: datetime) -> GoalResult:
    steps = state.pursuit.steps
    is_in_vain = stop.reason != "completed" and all(step.state != "done" for step in steps)
    if is_in_vain and not state.output:  # a longer text was denied, or could not be judged
        state = state.with_task(output=empty_result_text(stop))
    sources = tuple(dict.fromkeys(step.source for step in steps if step.state == "done" and step.source))
    return with_all_keys(
        GoalResult.model_validate(
            {
                **dict(agent_result(state, stop, now)),
                "rounds": state.pursuit.rounds,
                "plan": tuple(step.id for step in steps),
                "steps": tuple(map(shown_step, steps)),
                "confidence": goal_confidence(state),
                "sources": sources,
            }
        )
    )


def goal_status(state: GoalState, now: datetime) -> GoalStatus:
    pursuit = state.pursuit
    trend = score_trend(pursuit.trend)
    plan = ShownPlan(
        stage=pursuit.stage,
        rounds=pursuit.rounds,
        steps=tuple(map(shown_step, pursuit.steps)),
        trend="" if trend is None else trend.word,
        average=None if trend is None else trend.average,
        slope=None if trend is None else trend.slope,
        memory=pursuit.memory,
        **({"pipeline": state.pipeline} if state.pipeline else {}),
    )
    fields = {
        **dict(agent_status(state, now)),
        "plan": plan.model_dump(mode="json"),
        "confidence": goal_confidence(state),
    }
    return with_all_keys(GoalStatus.model_validate(fields))


_GOAL_CHARS = 200
DETAIL_CHARS = 300
_EMPTY_ANSWER_TEXT = "(nothing was found)"


def unknown_deliveries(wanted: tuple[str, ...] | None, known: tuple[str, ...]) -> str:
    unknown = [name for name in wanted or () if name not in known]
    if not unknown:
        return ""
    hint = known_names_hint(unknown[0], known) if known else "none is configured, see [goals.deliveries] of orga.toml"
    return f"deliver: there is no delivery {', '.join(map(repr, unknown))}; {hint}"


_CHANNELS_UNKNOWN = "the goal ended before its worker had reported its channels; nothing was sent"


def undelivered_without_setup(state: GoalState) -> tuple[Delivered, ...]:
    """Return failed deliveries to the named channels if the goal has no setup. Then default channels are unknown."""
    names = state.deliver if state.setup is None else None
    return tuple(Delivered(name=name, kind="unknown", status="failed", error=_CHANNELS_UNKNOWN) for name in names or ())


def chosen_channels(state: GoalState, *, is_in_vain: bool = False) -> tuple[Channel, ...]:
    """Return the channels that the starter named, or the default ones if none were named.

    A goal without results is not stored as knowledge.
    """
    channels = state.setup.deliveries if state.setup else ()
    channels = tuple(channel for channel in channels if channel.kind != "memory" or not is_in_vain)
    if state.deliver is None:
        return tuple(channel for channel in channels if channel.default)
    return tuple(channel for channel in channels if channel.name in state.deliver)


def delivery_request(state: GoalState, ended: GoalResult, channel: Channel, goal_id: str) -> DeliveryRequest:
    ending = ended.termination
    text = ended.output or _EMPTY_ANSWER_TEXT
    request = DeliveryRequest(
        name=channel.name,
        key=_delivery_key(state.origin, ending.reason, text, channel.name),
        agent=state.name,
        goal=one_line(state.input.task, _GOAL_CHARS),
        reason=ending.reason,
        detail=one_line(ending.detail, DETAIL_CHARS),
        confidence=ended.confidence,
        text=clip_json(text, MAX_ANSWER_BYTES, full_answer_location(goal_id)),
        size=len(text),
    )
    return request.with_behalf(call_behalf(state)) if channel.kind == "memory" else request


def _delivery_key(origin: str, reason: str, text: str, name: str) -> str:
    """Return the key of a delivery, made from the goal, its ending, its answer and the channel."""
    parts = (origin, reason, sha256(text.encode("utf-8", "replace")).hexdigest(), name)
    return f"goal_{sha256('/'.join(parts).encode()).hexdigest()[:32]}"


def with_delivery(state: GoalState, delivered: Delivered) -> GoalState:
    event = "Delivered" if delivered.status == "delivered" else "DeliveryFailed"
    return state.with_note(event, **delivered.model_dump(exclude={"status"}, exclude_defaults=True))
