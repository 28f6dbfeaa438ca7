"""Deferred tools: calls whose result comes later, from a client, a job or a webhook.

Such a call waits as a question of the kind `result`, whose id is the idempotency key: the work outside knows it from
its start, and a call with other arguments has another one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeVar

from pydantic_core import from_json, to_json

from orga.workflows.decisions.control.question_text import SHOWN_BYTES, shown_arguments
from orga.workflows.decisions.control.questions import MAX_RESULT_BYTES, find_question, with_question
from orga.workflows.types.control import Control
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Completion, Question, ToolCompletion
from orga.workflows.types.record import bounds_problem, parse_record
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.tools import Deferral

S = TypeVar("S", bound=Control)

MAX_COMPLETIONS = 64
"""Completions that are remembered, twice as many as one reply can have calls. A sender repeats one soon or never."""

DIGEST_CHARS = 16

_LONG_KEYS = frozenset({"result", "result_json", "error"})


def result_question(call: ToolCall, terms: Deferral, key: str, place: str, now: datetime) -> Question:
    """Return the question that waits for the result of a call."""
    arguments = to_json(call.arguments, inf_nan_mode="strings").decode()
    return Question(
        question_id=key,
        kind="result",
        since=now,
        text=f"the result of {call.name}",
        data={"tool": call.name, "call_id": call.call_id, "place": place, **shown_arguments(arguments, SHOWN_BYTES)},
        expires_at=now + timedelta(seconds=terms.expires_s),
    )


def with_awaited_result(state: S, question: Question, now: datetime) -> S:
    """Return the state that takes the result of a call. The same call may wait again, after a retry."""
    others = {key: digest for key, digest in state.completions.items() if key != question.question_id}
    return with_question(state.with_control(completions=others), question, now)


def with_result_expired(state: S, key: str) -> S:
    """Return the state that remembers that nobody completed the call."""
    return _with_digest(state, key, "")


def parsed_completion(state: Control, raw: object) -> tuple[str, Completion] | None:
    """Return the key of a waiting call and its end. None if the call was completed in exactly this way before.

    Raises:
        ValueError: It names no call that waits, comes too late, or is neither a result nor an error.
    """
    given = parse_record(ToolCompletion, raw, long=_LONG_KEYS)
    key, found = given.idempotency_key, _completion(given)
    if key in state.completions:
        if not state.completions[key]:
            raise ValueError(f"{key} has expired: no result arrived in time")
        if state.completions[key] != _digest(found):
            raise ValueError(f"{key} is completed already, with another result")
        return None
    question = find_question(state, key)
    if question is None or question.kind != "result" or not question.is_open:
        waiting = ", ".join(each.question_id for each in state.open_questions if each.kind == "result") or "none"
        raise ValueError(f"no call waits for a result under {key!r}; waiting: {waiting}")
    return key, found


def with_completion(state: S, raw: object, now: datetime) -> S:
    """Record the end of a call. Raise ValueError as `parsed_completion` does."""
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
    """Raise ValueError if there is nothing, too much, or more than one end."""
    is_blank = given.result is None or (isinstance(given.result, str) and not given.result.strip())
    ends = [not is_blank, bool(given.result_json.strip()), bool(given.error.strip())]
    if sum(ends) != 1:
        raise ValueError("give one of result, result_json and error, not empty")
    if given.nothing_done and not given.error:
        raise ValueError("nothing_done: only for an error")
    by = clean_text(given.by)
    if given.error:
        return Completion(error=clean_text(given.error), nothing_done=given.nothing_done, by=by)
    text = given.result_json or to_json(given.result, inf_nan_mode="strings").decode()
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
    """Return the digest of the end itself, whoever reports it. It is never empty."""
    content = f"{completion.result}/{completion.error}/{completion.nothing_done}"
    return sha256(content.encode()).hexdigest()[:DIGEST_CHARS]


def _with_digest(state: S, key: str, digest: str) -> S:
    kept = [*((each, other) for each, other in state.completions.items() if each != key), (key, digest)]
    return state.with_control(completions=dict(kept[-MAX_COMPLETIONS:]))
