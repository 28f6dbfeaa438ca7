"""Repetition without progress: repeated denials end a run, and calls that fail again are stopped.

If the same denial or the same failed call is repeated, the model will not find another way. A repeated call is a tool
with the same arguments, however often it is called. The config, the state and the journal call it a step.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rapidfuzz.distance import Levenshtein

from orga.workflows.decisions.control.questions import shown_arguments, with_question
from orga.workflows.decisions.conversation import with_message_to_model
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.control import Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Question, Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import to_json_text
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import Outcome, OutcomeStatus, RepeatedCall, StepIteration

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
    settings = _step_iteration(config)
    return settings.similarity_threshold if settings.enabled else EXACT_SIMILARITY


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


def refusal_names(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], status: OutcomeStatus) -> list[str]:
    """Return the names of the gate's refusals with this status, each once."""
    pairs = zip(outcomes, verdicts, strict=True)
    return list(dict.fromkeys(call_denial_name(o.call, v) for o, v in pairs if o.status == status))


def invalidity_names(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> list[str]:
    """Return the names for the invalid calls. If all are, add a fixed name: the model may invent a tool each time."""
    names = refusal_names(outcomes, verdicts, "invalid")
    is_all = bool(outcomes) and all(outcome.status == "invalid" for outcome in outcomes)
    return [*names, NO_VALID_CALL] if is_all else names


def has_only_stopped_calls(outcomes: Sequence[Outcome]) -> bool:
    """Return True if the reply had only stopped calls, so the model ignores its feedback."""
    return bool(outcomes) and all(o.status == "not_run" and o.text.startswith(_REPEAT_LIMIT_MARKER) for o in outcomes)


def answer_denial_name(verdict: Verdict) -> str:
    return f"final answer: {verdict.reason}"


def _is_similar(one: str, other: str, threshold: float) -> bool:
    if one == other or threshold >= EXACT_SIMILARITY:
        return one == other
    (tool, _, reason), (other_tool, _, other_reason) = one.partition(": "), other.partition(": ")
    return tool == other_tool and similarity(reason, other_reason) >= threshold


MAX_REPEATED_CALLS = 200
"""Newest repeated calls that are kept. The state has to fit a payload."""

MAX_SHOWN_CHARS = 2_000

_REPEAT_LIMIT_MARKER = "[Step limit]"

_WAITING_FOR_OPERATOR = "it waits for an operator's decision"


def stopped_call_text(state: AgentState, call: ToolCall) -> str:
    """Return the text for the model if the call is stopped, else ""."""
    repeated = state.steps.get(call_fingerprint(call)) if state.steps else None
    if repeated is None or not repeated.stopped or not _step_iteration(state.config).enabled:
        return ""
    return (
        f"{_REPEAT_LIMIT_MARKER} {call.name} with these arguments is not run again: {repeated.stopped}. "
        "Use other arguments or another tool, or go on without it."
    )


def with_failed_call(state: AgentState, call: ToolCall, error: str, now: datetime) -> AgentState:
    """Count a failed attempt. The call is stopped after too many attempts, or if two in a row fail alike."""
    settings, key = _step_iteration(state.config), call_fingerprint(call)
    before = state.steps.get(key, RepeatedCall(tool=call.name))
    if not settings.enabled or before.stopped:
        return state
    error = error[:MAX_COMPARED_CHARS]
    repeated = RepeatedCall(tool=call.name, attempts=before.attempts + 1, last_error=error)
    if before.attempts and similarity(before.last_error, error) >= settings.similarity_threshold:
        reason = f"it failed {repeated.attempts} times, the last two alike"
        return _with_stopped_call(state, call, repeated, reason, now)
    if repeated.attempts >= settings.max_reattempts:
        return _with_stopped_call(state, call, repeated, f"failed attempts: {repeated.attempts}", now)
    return _with_repeated_call(state, key, repeated)


def without_failures_of(state: AgentState, call: ToolCall) -> AgentState:
    return _without_repeated_call(state, call_fingerprint(call)) if state.steps else state


def with_resolved_repeated_call(state: AgentState, question: Question) -> AgentState:
    """Apply a person's decision about a repeated call. The caller closes the question."""
    decision, data = question.resolution, question.data
    if decision is None:
        return state
    key, tool = str(data.get("step_id", "")), str(data.get("tool", ""))
    repeated = state.steps.get(key) or RepeatedCall(tool=tool)
    match decision.choice:
        case "retry":
            return _without_repeated_call(state, key)
        case "skip":
            skipped = repeated.with_stop(_by_person_text("an operator skipped it", decision))
            return _with_repeated_call(state, key, skipped)
        case "result":
            reason = f"an operator gave its result: {decision.result[:MAX_SHOWN_CHARS]}"
            text = f"[Result from the operator] {repeated.tool} {data.get('arguments', '')}\n{decision.result}"
            return with_message_to_model(_with_repeated_call(state, key, repeated.with_stop(reason)), text)
        case "abort":
            detail = _by_person_text(f"{tool}: an operator ended the run", decision)
            return state.with_control(stop=Stop("escalated", detail))


def _step_iteration(config: LoopConfig) -> StepIteration:
    return config.step_iteration or StepIteration()


def _with_stopped_call(
    state: AgentState, call: ToolCall, repeated: RepeatedCall, reason: str, now: datetime
) -> AgentState:
    settings, key = _step_iteration(state.config), call_fingerprint(call)
    asks = settings.on_limit_reached == "escalate"
    state = _with_repeated_call(state, key, repeated.with_stop(_WAITING_FOR_OPERATOR if asks else reason))
    state = state.with_note("StepLimitReached", step_id=key, tool=call.name, attempts=repeated.attempts, reason=reason)
    if asks:
        return with_question(state, _stopped_call_question(state, call, repeated, now), now)
    if settings.on_limit_reached == "abort_task" and state.stop is None:
        detail = f"step limit of {call.name}, {reason}: {repeated.last_error}"
        return state.with_control(stop=Stop("error", detail))
    return state


def _stopped_call_question(state: AgentState, call: ToolCall, repeated: RepeatedCall, now: datetime) -> Question:
    prefix = f"step-{state.iteration}-"
    number = sum(each.question_id.startswith(prefix) for each in state.questions) + 1
    return Question(
        question_id=f"{prefix}{number}",
        kind="escalation",
        since=now,
        text=f"{call.name} gets nowhere, failed attempts: {repeated.attempts}. Retry, skip, give its result, or abort?",
        data={
            "step_id": call_fingerprint(call),
            "tool": call.name,
            **shown_arguments(to_json_text(call.arguments)),
            "attempts": repeated.attempts,
            "error": repeated.last_error,
        },
        choices=("retry", "skip", "result", "abort"),
    )


def _by_person_text(what: str, decision: Resolution) -> str:
    who = f"{what} ({decision.by})" if decision.by else what
    return (f"{who}: {decision.reason}" if decision.reason else who)[:MAX_SHOWN_CHARS]


def _with_repeated_call(state: AgentState, key: str, repeated: RepeatedCall) -> AgentState:
    """Return the state with the newest repeated call. The oldest ones above the limit are dropped."""
    steps = {**_without_repeated_call(state, key).steps, key: repeated}
    return state.with_failures(steps=dict(list(steps.items())[-MAX_REPEATED_CALLS:]))


def _without_repeated_call(state: AgentState, key: str) -> AgentState:
    if key not in state.steps:
        return state
    return state.with_failures(steps={other: kept for other, kept in state.steps.items() if other != key})
