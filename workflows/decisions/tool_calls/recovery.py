"""Recovery: what happens once the attempts of a tool call are used up, and its texts for the model and people."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.control.questions import shown_arguments
from orga.workflows.decisions.conversation import news_bytes_left, with_message_to_model
from orga.workflows.decisions.tool_calls.calls import call_fingerprint, taint_with_outcomes, with_counted_calls
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import call_source, delimited_tool_text
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import ToolCall, shortened_message
from orga.workflows.types.questions import Question, Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip, to_json_text
from orga.workflows.types.tool_calls.gate import Purpose
from orga.workflows.types.tool_calls.recovery import DeadLetter, GoodResult, Outcome, Recovery
from orga.workflows.types.tool_calls.tools import ToolSpec

SHOWN_MESSAGES = 4
SHOWN_BYTES = 2_000
"""Bytes of the arguments, and of each message, that a person sees."""


def given_up_text(tool: str) -> str:
    return f"[Recovery] {tool} is not called again in this run; go on without it."


class EscalatedCall(NamedTuple):
    """A failed call that a person is asked about."""

    call: ToolCall
    question_id: str
    error: str
    at: datetime
    unclear: str = ""
    """Follows the error, if the effect of the call is unknown."""


def escalation_question(state: AgentState, asked: EscalatedCall, settings: Recovery) -> Question:
    call = asked.call
    data: dict[str, object] = {
        "tool": call.name,
        "call_id": call.call_id,
        "error": f"{clip(asked.error, SHOWN_BYTES)}{asked.unclear}",
    }
    if settings.context_snapshot:
        latest = state.conversation.messages[-SHOWN_MESSAGES:]
        data |= shown_arguments(to_json_text(call.arguments), SHOWN_BYTES)
        data["latest"] = [{"role": m.role, "text": clip(m.text, SHOWN_BYTES)} for m in latest]
    return Question(
        question_id=asked.question_id,
        kind="escalation",
        since=asked.at,
        text=f"{call.name} failed: try again, skip, give its result, abort?",
        queue=settings.queue,
        data=data,
        choices=("retry", "skip", "result", "abort"),
    )


MAX_KEPT_BYTES = 100_000
"""Bytes of all kept results. The state has to fit a payload."""

MAX_LETTER_BYTES = 100_000
"""Bytes of all dead letters. None is dropped to make room. A call that does not fit is an ordinary failure."""

MAX_SHOWN_CHARS = 10_000
"""Characters of an alternative's arguments in a note. Longer arguments become text, cut to this length."""

_REPLY_CALL_ID = re.compile(r"[1-9]\d*\.\d+\.f\d+")
"""The place of an alternative to a reply's call."""

MAX_LETTER_ID_CHARS = 200

MAX_ERROR_CHARS = 500


class Alternative(NamedTuple):
    """A call that replaces a failed one."""

    place: str
    outcome: Outcome

    def as_note(self, instead_of: ToolCall) -> dict[str, Any]:
        """Return the note's data. It omits arguments that equal those of a reply's call: the journal has them."""
        call, status = self.outcome.call, self.outcome.status
        error = self.outcome.error or ("" if status == "ok" else self.outcome.text)
        is_known = call.arguments == instead_of.arguments and _REPLY_CALL_ID.fullmatch(self.place)
        return {
            "tool": call.name,
            "place": self.place,
            **({} if is_known else {"arguments": _shown_arguments(call)}),
            "outcome": status,
            **({"error": error[:MAX_ERROR_CHARS]} if error else {}),
        }


NO_LOOKUP = "it is no lookup"


def alternative_problem(spec: ToolSpec, replaced: Purpose) -> str:
    """Return why the tool may not replace a call that was made for this purpose, or "".

    In a saga only read-only steps and compensations have alternatives, and nothing takes back what these do.
    """
    has_effect, is_deferred = spec.effect != "read_only", spec.deferred is not None
    if replaced == "hydration" and has_effect:
        return NO_LOOKUP
    if replaced == "saga" and has_effect:
        return "it is no read-only tool, and its effect would not be taken back"
    if replaced == "hydration" and is_deferred:
        return "its results come later, and a lookup cannot wait"
    if replaced == "compensation" and is_deferred:
        return "its results come later, and a compensation cannot wait"
    return ""


def _shown_arguments(call: ToolCall) -> object:
    text = to_json_text(call.arguments)
    return call.arguments if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS]


def tool_recovery(spec: ToolSpec, config: LoopConfig) -> Recovery:
    return spec.options.recovery or config.recovery


def max_attempts(spec: ToolSpec, config: LoopConfig) -> int:
    """Return the attempts of one call: an irreversible tool has one."""
    if spec.effect == "irreversible":
        return 1
    return spec.options.max_attempts or tool_recovery(spec, config).max_attempts


MAX_VALUES_BYTES = 20_000
"""Bytes of JSON of all values that policies see. Newer values come first."""


def _with_latest_value(state: AgentState, spec: ToolSpec, text: str) -> AgentState:
    """Keep the latest value of a tool with an output schema, and the values of other tools that fit next to it."""
    if spec.value_schema is None:
        return state
    value = spec.value_in(text)
    newest_first = {} if value is None else {spec.name: value}
    newest_first |= {name: kept for name, kept in reversed(state.values.items()) if name != spec.name}
    fitting, room = dict[str, Any](), MAX_VALUES_BYTES
    for name, kept in newest_first.items():
        size = len(to_json({name: kept}))
        if size <= room:
            room -= size
            fitting[name] = kept
    return state.with_failures(values=dict(reversed(fitting.items())))


def with_succeeded_call(state: AgentState, spec: ToolSpec, call: ToolCall, text: str, now: datetime) -> AgentState:
    """Record a call that succeeded, if policies or the tool's recovery need it."""
    state = _with_latest_value(state, spec, text)
    if tool_recovery(spec, state.config).strategy == "cached_result":
        return state.with_failures(results=_kept_results_with(state, call, GoodResult(at=now, text=text)))
    if spec.name in state.failures:
        return state.with_failures(failures={t: count for t, count in state.failures.items() if t != spec.name})
    return state


def _kept_results_with(state: AgentState, call: ToolCall, result: GoodResult) -> dict[str, GoodResult]:
    """Return the kept results with the newest one. The oldest ones that do not fit are dropped."""
    key = call_fingerprint(call)
    newest_first = {key: result} | {name: kept for name, kept in reversed(state.results.items()) if name != key}
    fitting, room = dict[str, GoodResult](), MAX_KEPT_BYTES
    for name, kept in newest_first.items():
        room -= len(kept.text.encode())
        if room < 0:
            break
        fitting[name] = kept
    return dict(reversed(fitting.items()))


def cached_good_result(state: AgentState, call: ToolCall, recovery: Recovery, now: datetime) -> GoodResult | None:
    """Return the last good result of the same call, if it is recent enough."""
    kept = state.results.get(call_fingerprint(call))
    return kept if kept is not None and kept.age_s(now) <= recovery.max_staleness_s else None


def with_model_retry_failure(state: AgentState, tool: str) -> AgentState:
    return state.with_failures(failures={**state.failures, tool: state.failures.get(tool, 0) + 1})


def tries_left(state: AgentState, spec: ToolSpec) -> int | None:
    """Return how often the model may still try the tool, or None if its failures are not counted."""
    recovery = tool_recovery(spec, state.config)
    if recovery.strategy != "llm_recovery" or spec.name not in state.failures:
        return None
    return max(recovery.max_recovery_attempts + 1 - state.failures[spec.name], 0)


def with_dead_letter(state: AgentState, letter: DeadLetter) -> AgentState:
    """Keep a call that was given up, if there is room."""
    letters = (*(kept for kept in state.dead_letters if kept.letter_id != letter.letter_id), letter)
    size = sum(len(kept.model_dump_json().encode()) for kept in letters)
    return state.with_failures(dead_letters=letters) if size <= MAX_LETTER_BYTES else state


def parsed_letter_id(raw: object) -> str:
    """Return the id in `{letter_id, by}` or a bare id. Raise ValueError if it cannot be one."""
    given = as_object(raw).get("letter_id", raw)
    letter_id = str(given) if isinstance(given, (str, int, float)) else ""
    if not letter_id or len(letter_id) > MAX_LETTER_ID_CHARS:
        raise ValueError(f"give the id of a dead letter, a text of at most {MAX_LETTER_ID_CHARS} characters")
    return letter_id


def with_requeued_letter(state: AgentState, letter_id: str) -> AgentState:
    """Mark a letter to be sent again before the next reasoning step. Raise ValueError if its id is unknown."""
    if letter_id not in {letter.letter_id for letter in state.dead_letters}:
        known = ", ".join(letter.letter_id for letter in state.dead_letters) or "none"
        raise ValueError(f"no dead letter {letter_id!r} in this run; there are: {known}")
    letters = tuple(
        letter.with_requeued(True) if letter.letter_id == letter_id else letter for letter in state.dead_letters
    )
    return state.with_failures(dead_letters=letters)


def kept_idempotency_key(letter: DeadLetter, call: ToolCall) -> str | None:
    return letter.key if call_fingerprint(call) == call_fingerprint(letter.call) else None


def without_letter(state: AgentState, letter_id: str) -> AgentState:
    letters = tuple(letter for letter in state.dead_letters if letter.letter_id != letter_id)
    return state.with_failures(dead_letters=letters)


def with_letter_answered(state: AgentState, letter: DeadLetter, outcome: Outcome) -> AgentState:
    """Add the outcome of a requeued call as a message, because the original call has a result already."""
    result = shortened_message(outcome.message(), news_bytes_left(state) // 2)
    shown = delimited_tool_text(result, call_source(letter.call, state.tool(letter.call.name)))
    text = f"[Requeued call] {letter.call.name} ({letter.letter_id}), sent again by an operator:\n{shown}"
    state = state.with_dialogue(taint=taint_with_outcomes(state, (outcome,))).with_budget(under_way=0)
    state = with_message_to_model(state, text)
    if outcome.was_run:
        counts = state.tool_calls.plus(requeued=1, failed=int(outcome.status != "ok"))
        state = state.with_budget(tool_calls=counts)
    fields = {"tool": letter.call.name, "letter_id": letter.letter_id, "strategy": "requeue", "outcome": outcome.status}
    return state.with_note("RecoveryTriggered", **fields, text=outcome.text)


def with_end_by_escalation(state: AgentState, call: ToolCall, decision: Resolution) -> AgentState:
    who = f" ({decision.by})" if decision.by else ""
    why = f": {decision.reason}" if decision.reason else ""
    return state.with_control(stop=Stop("escalated", f"{call.name} failed and an operator ended the run{who}{why}"))


def with_recovery_note(
    state: AgentState, call: ToolCall, strategy: str, error: str, outcome: str, *, calls: Sequence[Alternative] = ()
) -> AgentState:
    calls_data = {"calls": [alternative.as_note(call) for alternative in calls]} if calls else {}
    return state.with_note(
        "RecoveryTriggered",
        tool=call.name,
        call_id=call.call_id,
        strategy=strategy,
        error=error,
        outcome=outcome,
        **calls_data,
    )


def with_alternative(state: AgentState, alternative: Alternative, *, is_begun: bool) -> AgentState:
    """Count an alternative to a failed call after it has ended."""
    counts = with_counted_calls(state.tool_calls, (alternative.outcome,)).plus(fallbacks=1)
    under_way = state.under_way - 1 if is_begun else state.under_way
    return state.with_budget(tool_calls=counts, under_way=under_way)
