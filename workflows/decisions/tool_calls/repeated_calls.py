"""Repetition without progress: repeated denials end a run, and calls that fail again are stopped.

If the same denial or the same failed call is repeated, the model will not find another way. Here, a step is a tool with
the same arguments, however often it is called.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json
from rapidfuzz.distance import Levenshtein

from orga.workflows.decisions.control.questions import SHOWN_BYTES, shown_arguments, with_question
from orga.workflows.decisions.conversation import with_message_to_model
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.control import Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Question, Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import Outcome, OutcomeStatus, Step, StepIteration

MAX_COMPARED_CHARS = 500
"""Characters. The time to compare grows with the product of the lengths, and an error's subject is at its beginning."""


def similarity(one: str, other: str) -> float:
    """Return 1 - distance / length of the longer text. 1.0 for two empty texts, 0.0 if one is empty."""
    return Levenshtein.normalized_similarity(one[:MAX_COMPARED_CHARS], other[:MAX_COMPARED_CHARS])


EXACT_SIMILARITY = 1.0

NO_VALID_CALL = "no call of the reply was valid"

ONLY_STOPPED_CALLS = "nothing but calls of stopped steps"


def similarity_threshold(config: LoopConfig) -> float:
    """Return the similarity at which two reasons count as one. If `step_iteration` is off, they must be equal."""
    tracked = config.step_iteration or StepIteration()
    return tracked.similarity_threshold if tracked.enabled else EXACT_SIMILARITY


def with_streaks(state: AgentState, denied: Iterable[str] = (), invalid: Iterable[str] = ()) -> AgentState:
    """Return the state after an iteration with these denied and invalid calls. All other streaks end."""
    alike = similarity_threshold(state.config)
    return state.with_failures(
        denials=denial_streaks(state.denials, denied, alike), invalid=denial_streaks(state.invalid, invalid, alike)
    )


def denial_streaks(
    streaks: dict[str, int], denied: Iterable[str], threshold: float = EXACT_SIMILARITY
) -> dict[str, int]:
    """Return the streaks after one more iteration. A denial that was not repeated is removed.

    Denials of one tool with similar reasons, at `threshold` or more, are one denial. Its newest wording is kept.
    """
    after: dict[str, int] = {}
    for denial in denied:
        if not any(_is_similar(denial, other, threshold) for other in after):
            before = [times for other, times in streaks.items() if _is_similar(denial, other, threshold)]
            after[denial] = max(before, default=0) + 1
    return after


def call_denial_name(call: ToolCall, verdict: Verdict) -> str:
    """Return the name of a denial: the tool and the reason. Other arguments do not make it another denial."""
    return f"{call.name}: {verdict.reason}"


def turned_down_calls(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], status: OutcomeStatus) -> list[str]:
    """Return the names of calls that the gate refused with this status, each once."""
    pairs = zip(outcomes, verdicts, strict=True)
    return list(dict.fromkeys(call_denial_name(o.call, v) for o, v in pairs if o.status == status))


def invalid_calls(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> list[str]:
    """Return the names of invalid calls. If all are, add a fixed name: the model may invent a tool each time."""
    named = turned_down_calls(outcomes, verdicts, "invalid")
    is_all = bool(outcomes) and all(outcome.status == "invalid" for outcome in outcomes)
    return [*named, NO_VALID_CALL] if is_all else named


def has_only_stopped_calls(outcomes: Sequence[Outcome]) -> bool:
    """Return True if the reply had only calls of stopped steps, so the model ignores its feedback."""
    return bool(outcomes) and all(o.status == "not_run" and o.text.startswith(_REPEAT_LIMIT_MARKER) for o in outcomes)


def answer_denial_name(verdict: Verdict) -> str:
    return f"final answer: {verdict.reason}"


def _is_similar(one: str, other: str, threshold: float) -> bool:
    (tool, _, reason), (other_tool, _, other_reason) = one.partition(": "), other.partition(": ")
    if one == other:
        return True
    return tool == other_tool and threshold < EXACT_SIMILARITY and similarity(reason, other_reason) >= threshold


MAX_REPEATED_CALLS = 200
"""Newest steps that are kept. The state has to fit a payload."""

MAX_SHOWN_CHARS = 2_000

_REPEAT_LIMIT_MARKER = "[Step limit]"

_WAITING_FOR_OPERATOR = "it waits for an operator's decision"


def stopped_call_text(state: AgentState, call: ToolCall) -> str:
    """Return the text for the model if the call's step is stopped, else ""."""
    step = state.steps.get(call_fingerprint(call)) if state.steps else None
    if step is None or not step.stopped or not _step_iteration(state).enabled:
        return ""
    return (
        f"{_REPEAT_LIMIT_MARKER} {call.name} with these arguments is not run again: {step.stopped}. "
        "Use other arguments or another tool, or go on without it."
    )


def with_failed_call(state: AgentState, call: ToolCall, error: str, now: datetime) -> AgentState:
    """Count a failed attempt. The step is stopped after too many attempts, or if two in a row fail alike."""
    settings, key = _step_iteration(state), call_fingerprint(call)
    before = state.steps.get(key, Step(tool=call.name))
    if not settings.enabled or before.stopped:
        return state
    error = error[:MAX_COMPARED_CHARS]
    step = Step(tool=call.name, attempts=before.attempts + 1, last_error=error)
    if before.attempts and similarity(before.last_error, error) >= settings.similarity_threshold:
        return _with_stopped_call(state, call, step, f"it failed {step.attempts} times, the last two alike", now)
    if step.attempts >= settings.max_reattempts:
        return _with_stopped_call(state, call, step, f"failed attempts: {step.attempts}", now)
    return _with_repeated_call(state, key, step)


def without_failures_of(state: AgentState, call: ToolCall) -> AgentState:
    return _with_repeated_call(state, call_fingerprint(call), None) if state.steps else state


def with_resolved_repeated_call(state: AgentState, question: Question) -> AgentState:
    """Apply a person's decision about a step. The caller closes the question."""
    decision, data = question.resolution, question.data
    key, tool = str(data.get("step_id", "")), str(data.get("tool", ""))
    if decision is None:
        return state
    step = state.steps.get(key) or Step(tool=tool)
    match decision.choice:
        case "retry":
            return _with_repeated_call(state, key, None)
        case "skip":
            return _with_repeated_call(state, key, step.with_stop(_by_person_text("an operator skipped it", decision)))
        case "result":
            return _with_result(state, data, step, decision)
        case "abort":
            return state.with_control(
                stop=Stop("escalated", _by_person_text(f"{tool}: an operator ended the run", decision))
            )


def _step_iteration(state: AgentState) -> StepIteration:
    return state.config.step_iteration or StepIteration()


def _with_stopped_call(state: AgentState, call: ToolCall, step: Step, reason: str, now: datetime) -> AgentState:
    settings, key = _step_iteration(state), call_fingerprint(call)
    asks = settings.on_limit_reached == "escalate"
    state = _with_repeated_call(state, key, step.with_stop(_WAITING_FOR_OPERATOR if asks else reason))
    state = state.with_note("StepLimitReached", step_id=key, tool=call.name, attempts=step.attempts, reason=reason)
    if asks:
        return with_question(state, _stopped_call_question(state, call, step, now), now)
    if settings.on_limit_reached == "abort_task" and state.stop is None:
        detail = f"step limit of {call.name}, {reason}: {step.last_error}"
        return state.with_control(stop=Stop("error", detail))
    return state


def _stopped_call_question(state: AgentState, call: ToolCall, step: Step, now: datetime) -> Question:
    prefix = f"step-{state.iteration}-"
    number = sum(each.question_id.startswith(prefix) for each in state.questions) + 1
    return Question(
        question_id=f"{prefix}{number}",
        kind="escalation",
        since=now,
        text=f"{call.name} gets nowhere, failed attempts: {step.attempts}. Retry, skip, give its result, or abort?",
        data={
            "step_id": call_fingerprint(call),
            "tool": call.name,
            **shown_arguments(to_json(call.arguments, inf_nan_mode="strings").decode(), SHOWN_BYTES),
            "attempts": step.attempts,
            "error": step.last_error,
        },
        choices=("retry", "skip", "result", "abort"),
    )


def _with_result(state: AgentState, data: Mapping[str, Any], step: Step, decision: Resolution) -> AgentState:
    text = f"[Result from the operator] {step.tool} {data.get('arguments', '')}\n{decision.result}"
    reason = f"an operator gave its result: {decision.result[:MAX_SHOWN_CHARS]}"
    state = _with_repeated_call(state, str(data.get("step_id", "")), step.with_stop(reason))
    return with_message_to_model(state, text)


def _by_person_text(what: str, decision: Resolution) -> str:
    who = f"{what} ({decision.by})" if decision.by else what
    return (f"{who}: {decision.reason}" if decision.reason else who)[:MAX_SHOWN_CHARS]


def _with_repeated_call(state: AgentState, key: str, step: Step | None) -> AgentState:
    if step is None and key not in state.steps:
        return state
    steps = {other: kept for other, kept in state.steps.items() if other != key}
    if step is not None:
        steps[key] = step
    return state.with_failures(steps=dict(list(steps.items())[-MAX_REPEATED_CALLS:]))
