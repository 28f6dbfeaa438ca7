"""The questions that a call waits for: its approval, the input that its server needs, the result of a deferred tool.

A deferred tool's result comes later, from a client, a job or a webhook. The id of its question is the call's
idempotency key. The work outside knows this key from its start. A call with other arguments has another key.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from hashlib import sha256
from math import isfinite
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from orga.workflows.decisions.control.questions import (
    MAX_RESULT_BYTES,
    find_item,
    find_question,
    shown_arguments,
    with_question,
)
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.control import Control
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import (
    MAX_INPUT_ROUNDS,
    AskedInput,
    Completion,
    FormField,
    Item,
    Question,
    ToolCompletion,
)
from orga.workflows.types.record import bounds_problem, parse_record
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clean_text, to_json_text
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict
from orga.workflows.types.tool_calls.tools import Deferral

ID_CHARS = 24


def approval_item(
    state: AgentState,
    request_id: str,
    call: ToolCall,
    verdict: Verdict,
    now: datetime,
    *,
    occasion: str = "",
    place: str = "",
) -> Item:
    """Return the item of a call that the verdict allows only with a person's approval.

    Args:
        request_id: The place of the call, with the round if people are asked again, or with the critic that asks. The
            approval is bound to it.
        call: The call as it would be carried out.
        occasion: Unique to this request in this execution, so that an approval from before a reset does not count after
            it.
    """
    terms = verdict.approval or ApprovalTerms()
    about, call_data = _call_digest(state.origin, request_id, call, verdict.version), call.model_dump()
    before = find_item(state, about)
    if before is not None:  # the previous segment asked, and may have cut the item
        if before.call == call_data:
            return before
        return before.with_content(call_data, verdict.version, verdict.reason, terms.approvers)
    return Item(
        approval_id=sha256(f"{about}/{occasion}".encode()).hexdigest()[:ID_CHARS],
        about=about,
        call=call_data,
        version=verdict.version,
        reason=verdict.reason,
        approvers=terms.approvers,
        expires_at=now + timedelta(seconds=terms.expires_s),
        answer=None,
        place=place,
    )


def _call_digest(origin: str, request_id: str, call: ToolCall, version: str) -> str:
    """Return the digest of exactly this call under exactly this policy: sha256, so an approval fits nothing else."""
    identity = (
        f"{origin}/{request_id}/{call_fingerprint(call)}/{to_json(call.arguments, inf_nan_mode='strings')!r}/{version}"
    )
    return sha256(identity.encode()).hexdigest()[:ID_CHARS]


def approval_question(items: Sequence[Item], question_id: str, now: datetime) -> Question:
    tools = ", ".join(str(item.call["name"]) for item in items)
    return Question(question_id=question_id, kind="approval", since=now, text=f"approve {tools}?", items=tuple(items))


S = TypeVar("S", bound=Control)

MAX_COMPLETIONS = 64
"""Completions that are remembered: twice the calls of one reply. If a sender repeats a completion, it does so soon."""

DIGEST_CHARS = 16

_LONG_KEYS = frozenset({"result", "result_json", "error"})


def result_question(call: ToolCall, terms: Deferral, key: str, place: str, now: datetime) -> Question:
    return Question(
        question_id=key,
        kind="result",
        since=now,
        text=f"the result of {call.name}",
        data={
            "tool": call.name,
            "call_id": call.call_id,
            "place": place,
            **shown_arguments(to_json_text(call.arguments)),
        },
        expires_at=now + timedelta(seconds=terms.expires_s),
    )


def with_awaited_result(state: S, question: Question, now: datetime) -> S:
    """Return the state in which a call waits for its result. After a retry, the same call may wait again."""
    others = {key: digest for key, digest in state.completions.items() if key != question.question_id}
    return with_question(state.with_control(completions=others), question, now)


def with_result_expired(state: S, key: str) -> S:
    """Return the state that remembers that nobody completed the call."""
    return _with_digest(state, key, "")


def parsed_completion(state: Control, raw: object) -> tuple[str, Completion] | None:
    """Return the key of a waiting call and its completion, or None if exactly this completion is recorded already.

    Raise ValueError if no such call waits, if it comes too late, or if it has neither a result nor an error.
    """
    given = parse_record(ToolCompletion, raw, long=_LONG_KEYS)
    key, completion = given.idempotency_key, _completion(given)
    if key in state.completions:
        if not state.completions[key]:
            raise ValueError(f"{key} has expired: no result arrived in time")
        if state.completions[key] != _digest(completion):
            raise ValueError(f"{key} is completed already, with another result")
        return None
    question = find_question(state, key)
    if question is None or question.kind != "result" or not question.is_open:
        waiting = ", ".join(each.question_id for each in state.open_questions if each.kind == "result") or "none"
        raise ValueError(f"no call waits for a result under {key!r}; waiting: {waiting}")
    return key, completion


def with_completion(state: S, raw: object, now: datetime) -> S:
    """Record the completion of a call. Raise ValueError as `parsed_completion` does."""
    parsed = parsed_completion(state, raw)
    if parsed is None:
        return state
    key, completion = parsed
    questions = tuple(
        question.with_completion(completion) if question.question_id == key else question
        for question in state.questions
    )
    return _with_digest(state.with_control(questions=questions).with_clock_updated(now), key, _digest(completion))


def _completion(given: ToolCompletion) -> Completion:
    has_result = bool(given.result.strip()) if isinstance(given.result, str) else given.result is not None
    if [has_result, bool(given.result_json.strip()), bool(given.error.strip())].count(True) != 1:
        raise ValueError("give one of result, result_json and error; it must not be empty")
    if given.nothing_done and not given.error:
        raise ValueError("nothing_done: only for an error; leave it out for a result")
    by = clean_text(given.by)
    if given.error:
        return Completion(error=clean_text(given.error), nothing_done=given.nothing_done, by=by)
    text = given.result_json or to_json_text(given.result)
    if (size := len(text.encode())) > MAX_RESULT_BYTES:
        raise ValueError(f"result: has {size} bytes of JSON; give at most {MAX_RESULT_BYTES}, or where to find it")
    if given.result_json and (problem := _json_problem(text)):
        raise ValueError(f"result_json: {problem}")
    return Completion(result=text, by=by)


def _json_problem(text: str) -> str:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        return f"this is no JSON: {error}"
    if value is None or value == "":
        return "must not be empty"
    return bounds_problem({"value": value}, frozenset({"value"}))


def _digest(completion: Completion) -> str:
    """Return the digest of a completion without its sender. It is never empty."""
    content = f"{completion.result}/{completion.error}/{completion.nothing_done}"
    return sha256(content.encode()).hexdigest()[:DIGEST_CHARS]


def _with_digest(state: S, key: str, digest: str) -> S:
    latest = [*((each, other) for each, other in state.completions.items() if each != key), (key, digest)]
    return state.with_control(completions=dict(latest[-MAX_COMPLETIONS:]))


INPUT_EXPIRES_S = 86_400.0
"""Seconds until a request without an answer counts as declined."""

_LEFT_OUT = "-"

YES, NO, DONE = "yes", "no", "done"


def input_question_text(server: str, tool: str, asked: AskedInput, field: FormField | None, problem: str = "") -> str:
    text = f"The MCP server {server!r} asks, for {tool}: {asked.message}"
    if asked.url:
        text += f"\nIt wants you to open {asked.url}\nOpen it only if you trust this server. Then answer {DONE!r}."
    elif field is not None:
        optional = "" if field.is_required else f" (optional, {_LEFT_OUT!r} leaves it out)"
        wanted = "Choose an option" if input_options(asked, field) else f"Give {_kind_text(field)}"
        text += f"\n{field.title}{optional}\n{wanted}{_limits_text(field)}."
        text += " Never give a password, a key or the number of a card."
    return f"{text}\n{problem}" if problem else text


def _limits_text(field: FormField) -> str:
    limits = (("at least", field.least), ("at most", field.most))
    unit = {"number": "", "integer": "", "list": " of them"}.get(field.kind, " characters")
    texts = [f"{name} {limit:.15g}{unit}" for name, limit in limits if limit is not None]
    return f", {', '.join(texts)}" if texts else ""


LOOKUP_CANNOT_ASK = "a lookup before the first step cannot ask"
ASKED_TOO_OFTEN = f"people were asked {MAX_INPUT_ROUNDS} times"


def input_options(asked: AskedInput, field: FormField | None) -> tuple[str, ...]:
    """Return the valid answers. Empty means that any text may be valid."""
    if asked.url:
        return (DONE,)
    if field is None:
        return (YES, NO)
    if field.kind == "list":  # an answer may have several of them
        return ()
    options = (YES, NO) if field.kind == "boolean" else field.options
    return (*options, _LEFT_OUT) if options and not field.is_required else options


def field_value(field: FormField, answer: str) -> Any:
    """Return the value of a field, or None if it is left out. Raise ValueError with the reason if it is not valid."""
    if answer.strip() == _LEFT_OUT and not field.is_required:
        return None
    try:
        value = _READERS[field.kind](answer.strip() if field.kind != "string" else answer)
    except ValueError:
        value = None
    has_unknown_option = field.kind == "list" and value is not None and not {*value} <= {*field.options}
    if value is None or has_unknown_option:
        raise ValueError(f"{answer[:40]!r} is not {_kind_text(field)}")
    size = value if isinstance(value, int | float) else len(value)
    is_too_small = field.least is not None and size < field.least
    is_too_large = field.most is not None and size > field.most
    if is_too_small or is_too_large:
        raise ValueError(f"{answer[:40]!r} is not allowed{_limits_text(field)}")
    return value


def _kind_text(field: FormField) -> str:
    if field.kind == "list":
        return f"one or several of {', '.join(field.options)}, separated by commas"
    return _KIND_NAMES[field.kind]


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _matching(pattern: str) -> Callable[[str], str]:
    def text_of(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(text)
        return text

    return text_of


def _timestamp(text: str) -> str:
    if (found := datetime.fromisoformat(text)).tzinfo is None:  # JSON Schema's format needs a time zone
        raise ValueError(text)
    return found.isoformat()


_READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "email": _matching(r"[^@\s]+@[^@\s]+"),
    "uri": _matching(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": lambda text: date.fromisoformat(text).isoformat(),
    "date-time": _timestamp,
    "number": _number,
    "integer": int,
    "boolean": lambda text: text == YES,
    "list": lambda text: [*dict.fromkeys(each.strip() for each in text.split(","))],
}
_KIND_NAMES = {
    "string": "a text",
    "email": "an email address",
    "uri": "an address such as https://example.org",
    "date": "a date such as 2026-01-31",
    "date-time": "a time such as 2026-01-31T09:00:00+01:00",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "yes or no",
}
