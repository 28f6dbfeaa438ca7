"""Questions to people. Each is asked, decided once, and closed. While one is open, the run's clock is stopped."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypeVar, cast

from orga.workflows.types.control import Control
from orga.workflows.types.json_text import as_text
from orga.workflows.types.questions import (
    ANSWER,
    EXPIRED_DECISION,
    QUESTION_ANSWERED,
    QUESTION_ASKED,
    ApprovalDecision,
    Choice,
    Item,
    ItemDecision,
    Question,
    Resolution,
    ShownQuestion,
)
from orga.workflows.types.record import parse_record
from orga.workflows.types.text import clean_text, clip, to_json_text

SHOWN_BYTES = 2_000
"""Bytes of an item's arguments that a person sees."""

_SHOWN_ANSWER_BYTES = 50_000
"""Bytes of an answer that a person sees. They are more than for a call: the person decides on the whole text."""


def shown_arguments(arguments: str, most: int = SHOWN_BYTES) -> dict[str, Any]:
    """Return the arguments as JSON text. Above `most` bytes they are cut, with size and digest."""
    if len(arguments.encode()) <= most:
        return {"arguments": arguments}
    return {"arguments": clip(arguments, most), **size_and_digest(arguments)}


def size_and_digest(arguments: str) -> dict[str, Any]:
    """Return the keys that show that arguments in JSON are not whole."""
    data = arguments.encode()
    return {"arguments_bytes": len(data), "arguments_digest": f"sha256:{sha256(data).hexdigest()}"}


def shown_question(question: Question) -> ShownQuestion:
    """Return a question as people see it: its own data, and each undecided item."""
    calls = {"calls": list(map(_shown_item, question.undecided_items))} if question.items else {}
    return ShownQuestion(
        wait_id=question.question_id,
        kind=question.kind,
        since=question.since,
        question=question.text,
        queue=question.queue,
        data={**question.data, **_answer_terms(question), **calls},
        choices=question.choices,
        resolution=question.resolution,
    )


_EventData = tuple[str, dict[str, Any]]


def _question_asked_event(question: Question) -> _EventData:
    if question.kind == "answer":
        return QUESTION_ASKED, {"id": question.question_id, "question": question.text, **_answer_terms(question)}
    data = {"kind": question.kind, "id": question.question_id, "question": question.text, "queue": question.queue}
    if question.kind == "result":
        data |= _answer_terms(question)
    return "ApprovalRequested", data


def _question_closed_event(question: Question) -> _EventData:
    resolution = question.resolution
    if question.kind == "result":
        return "ApprovalResolved", {"kind": question.kind, "id": question.question_id, **_completion_data(question)}
    decided = {"choice": "none"}
    if resolution is not None:
        decided = {"choice": resolution.choice, "by": resolution.by, "reason": resolution.reason}
    if question.kind != "answer":
        return "ApprovalResolved", {"kind": question.kind, "id": question.question_id, **decided}
    if resolution is not None:
        decided["answer"] = resolution.result
    data = {"id": question.question_id, "question": question.text}
    data |= {key: text for key, text in decided.items() if text}
    if question.place:
        # for the call that asked, any answer is a success
        data |= {"place": question.place, "outcome": "cancelled" if resolution is None else "ok"}
    return QUESTION_ANSWERED, data


def _completion_data(question: Question) -> dict[str, Any]:
    """Return how a call got its result. The outcome of the call has the result itself."""
    if (completion := question.completion) is None:
        # without a result, only the expiry of the question is a resolution
        return {"choice": "expired" if question.resolution else "none"}
    failed = {"reason": completion.error} if completion.error else {}
    return {"choice": "failed" if completion.error else "completed", "by": completion.by, **failed}


def _answer_terms(question: Question) -> dict[str, Any]:
    expires_at = question.expires_at.isoformat() if question.expires_at else ""
    terms: dict[str, Any] = {"options": list(question.options), "default": question.default}
    terms |= {"expires_at": expires_at, "approvers": list(question.approvers)}
    return {key: value for key, value in terms.items() if value}


def _shown_item(item: Item) -> dict[str, Any]:
    """Return an item as people see it: with all of its arguments, or their size and digest."""
    call = item.call
    if "arguments_digest" in call:
        arguments = {key: call[key] for key in ("arguments_bytes", "arguments_digest")} | {"arguments": ""}
    else:
        most = _SHOWN_ANSWER_BYTES if call.get("name") == ANSWER else SHOWN_BYTES
        arguments = shown_arguments(to_json_text(call.get("arguments", {})), most)
    return {
        "id": item.approval_id,
        "tool": call.get("name", ""),
        "call_id": call.get("call_id", ""),
        **arguments,
        "reason": item.reason,
        "approvers": list(item.approvers),
        "expires_at": item.expires_at.isoformat(),
        **item.asker_data,
    }


def call_without_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with size and digest in place of its arguments: cut arguments could be read as the whole."""
    if "arguments_digest" in call:
        return dict(call)
    left_out = size_and_digest(to_json_text(call.get("arguments", {})))
    return {"call_id": call.get("call_id", ""), "name": call.get("name", ""), "arguments": {}, **left_out}


S = TypeVar("S", bound=Control)

MAX_RESULT_BYTES = 100_000
MAX_REASON_CHARS = 2_000
MAX_CHANGED_CHARS = 20_000
"""Characters of JSON, in ASCII, of all arguments that people change in open questions. The state carries them."""


def with_question(state: S, question: Question, now: datetime) -> S:
    """Return the state that waits for an answer to one more question.

    If the previous segment asked it already, it stays open: it keeps its time, and its items keep their decisions. If
    none of its items is the same, it is closed and asked again. The journal gets the items again in both cases.
    """
    carried = find_question(state, question.question_id)
    if carried is not None and not question.items:
        return state
    if carried is not None and _shares_items(carried, question):
        question = _with_kept_decisions(question, carried)
    elif carried is not None:
        state = without_question(state, carried.question_id, now)
        announced = tuple(question_id for question_id in state.announced if question_id != carried.question_id)
        state = state.with_control(announced=announced)
    others = _questions_without(state, question.question_id)
    event, data = _question_asked_event(question)
    state = state.with_control(questions=(*others, question)).with_note(event, **data).with_clock_updated(now)
    for item in question.items:
        state = state.with_note("ApprovalRequested", kind="call", place=item.place, **_shown_item(item))
        state = state if item.answer is None else _with_decision_note(state, item, item.answer)
    return state


def _shares_items(carried: Question, question: Question) -> bool:
    """Return True if the two have an item in common. After a change of rules all items are different."""
    return not {item.approval_id for item in carried.items}.isdisjoint(item.approval_id for item in question.items)


def _with_kept_decisions(question: Question, carried: Question) -> Question:
    decisions = {item.approval_id: item.answer for item in carried.items}
    items = tuple(item.with_decision(decisions.get(item.approval_id, item.answer)) for item in question.items)
    return question.with_since(carried.since).with_items(items)


def _questions_without(state: Control, question_id: str) -> tuple[Question, ...]:
    return tuple(question for question in state.questions if question.question_id != question_id)


def _with_decision_note(state: S, item: Item, decision: ItemDecision) -> S:
    data: dict[str, Any] = {"approved": decision.approved, "approver": decision.approver, "reason": decision.reason}
    data |= {"id": item.approval_id, "place": item.place, "tool": item.call.get("name", "")}
    if decision.arguments is not None:
        data |= shown_arguments(_json(decision.arguments))
    return state.with_note("ApprovalResolved", kind="call", **data)


def without_question(state: S, question_id: str, now: datetime) -> S:
    """Return the state without the question, and with a note on its decision. Undecided items stay undecided."""
    question = find_question(state, question_id)
    if question is None:
        return state
    event, data = _question_closed_event(question)
    state = state.with_control(questions=_questions_without(state, question_id))
    return state.with_note(event, **data).with_clock_updated(now)


def with_resolution(state: S, resolution: Resolution, now: datetime) -> S:
    """Record a person's decision. The first one is kept."""
    questions = tuple(
        question.with_resolution(resolution)
        if question.question_id == resolution.escalation_id and question.resolution is None
        else question
        for question in state.questions
    )
    return state.with_control(questions=questions).with_clock_updated(now)


def with_item_decision(state: S, given: ApprovalDecision, approved: bool, now: datetime) -> S:
    """Record a person's decision on an item. The first one is kept."""
    decision = ItemDecision(approved=approved, approver=given.approver, reason=given.reason)
    if given.arguments is not None:
        decision = decision.with_arguments(given.arguments)
    return _with_item_decisions(state, {given.approval_id: decision}, now)


def with_expired_decisions(state: S, expiry: datetime, now: datetime) -> S:
    """Return the state after the timer for `expiry`. Late items are denied. Late questions get their default, or none.

    The time of the timer decides what is late, not `now`.
    """
    for question in state.questions:
        if question.is_open and question.expires_at is not None and expiry >= question.expires_at:
            choice: Choice = "result" if question.default else "skip"
            resolution = Resolution(
                escalation_id=question.question_id,
                choice=choice,
                result=question.default,
                reason="nobody answered in time",
            )
            state = with_resolution(state, resolution, now)
    undecided = [item for question in state.questions for item in question.undecided_items]
    late = [item.approval_id for item in undecided if expiry >= item.expires_at]
    return _with_item_decisions(state, dict.fromkeys(late, EXPIRED_DECISION), now) if late else state


def _with_item_decisions(state: S, decisions: Mapping[str, ItemDecision], now: datetime) -> S:
    questions = list[Question]()
    for question in state.questions:
        items = list[Item]()
        for item in question.items:
            decision = decisions.get(item.approval_id)
            if decision is not None and item.answer is None:
                item = item.with_decision(decision)  # noqa: PLW2901
                state = _with_decision_note(state, item, decision)
            items.append(item)
        questions.append(question.with_items(tuple(items)) if items else question)
    return state.with_control(questions=tuple(questions)).with_clock_updated(now)


def find_question(state: Control, question_id: str) -> Question | None:
    """Return the question with this id, decided or not."""
    return next((question for question in state.questions if question.question_id == question_id), None)


def is_open(state: Control, question_id: str) -> bool:
    question = find_question(state, question_id)
    return question is not None and question.is_open


def next_expiry(state: Control, question_id: str) -> datetime | None:
    """Return the time when the question, or the next of its undecided items, expires."""
    question = find_question(state, question_id)
    if question is None:
        return None
    expiries = [item.expires_at for item in question.undecided_items]
    if question.expires_at is not None:
        expiries.append(question.expires_at)
    return min(expiries, default=None)


def _items(state: Control) -> tuple[Item, ...]:
    return tuple(item for question in state.questions for item in question.items)


def pending_items(state: Control, now: datetime) -> tuple[Item, ...]:
    return tuple(item for item in _items(state) if item.answer is None and now < item.expires_at)


def find_item(state: Control, about: str) -> Item | None:
    """Return the item with this digest of its subject."""
    return next((item for item in _items(state) if item.about == about), None)


_LONG_KEYS = frozenset({"result", "reason"})
"""Keys whose texts may be long. They have limits of their own."""


def parsed_resolution(state: Control, raw: object) -> Resolution:
    """Return a person's decision. Raise ValueError if no such question is open, or if the person may not make it."""
    resolution = parse_record(Resolution, raw, long=_LONG_KEYS)
    question = find_question(state, resolution.escalation_id)
    if question is None:
        waiting = ", ".join(asked.question_id for asked in state.questions) or "nothing"
        raise ValueError(f"no escalation {resolution.escalation_id!r} waits here; waiting: {waiting}")
    if question.resolution is not None:
        raise ValueError(f"{resolution.escalation_id} is decided already: {question.resolution.choice}")
    if resolution.choice not in question.choices:
        raise ValueError(state.unavailable_choice_text(question.kind) or f"choose one of {', '.join(question.choices)}")
    if question.approvers and resolution.by not in question.approvers:
        raise ValueError(f"{resolution.by!r} may not decide this; these may: {', '.join(question.approvers)}")
    if question.options and resolution.choice == "result" and resolution.result not in question.options:
        raise ValueError(f"answer with one of: {', '.join(question.options)}")
    if len(resolution.reason) > MAX_REASON_CHARS:
        raise ValueError(f"reason: must not be longer than {MAX_REASON_CHARS:,} characters")
    if len(resolution.result.encode()) > MAX_RESULT_BYTES:
        raise ValueError(f"result: must not be longer than {MAX_RESULT_BYTES} bytes")
    return resolution.with_result(clean_text(resolution.result))


def parsed_decision(state: Control, raw: object, now: datetime, *, approved: bool = True) -> ApprovalDecision:
    """Return a person's decision. Raise ValueError if no such item is pending, or if the person may not make it."""
    decision = parse_record(ApprovalDecision, raw, long=_LONG_KEYS | {"arguments"})
    item = next((item for item in _items(state) if item.approval_id == decision.approval_id), None)
    if item is None:
        pending = ", ".join(item.approval_id for item in pending_items(state, now)) or "none"
        raise ValueError(f"no approval is pending under {decision.approval_id!r}; pending: {pending}")
    if item.answer is not None:
        status = "approved" if item.answer.approved else "denied"
        raise ValueError(f"{decision.approval_id} is {status} already, by {item.answer.approver or 'nobody in time'}")
    if now >= item.expires_at:
        raise ValueError(f"{decision.approval_id} has expired")
    if item.approvers and decision.approver not in item.approvers:
        raise ValueError(f"{decision.approver!r} may not decide this; these may: {', '.join(item.approvers)}")
    if decision.arguments is not None and (problem := _changed_arguments_problem(state, item, decision, approved)):
        raise ValueError(f"arguments: {problem}")
    return decision


def _changed_arguments_problem(state: Control, item: Item, decision: ApprovalDecision, approved: bool) -> str:
    """Return why a person cannot change these arguments, or "". The gate checks them against the tool's schema."""
    if not approved:
        return "only an approval can change them"
    if item.critic or item.call.get("name") == ANSWER:
        return "only the arguments of a call that policy holds can be changed"
    decisions = [other.answer for other in _items(state) if other.answer is not None]
    changed = [decision.arguments, *(earlier.arguments for earlier in decisions if earlier.arguments is not None)]
    if sum(len(_json(arguments)) for arguments in changed) > MAX_CHANGED_CHARS:
        return f"at most {MAX_CHANGED_CHARS:,} characters of JSON for all arguments that people change at a time"
    return ""


def _json(arguments: object) -> str:
    """Return JSON in ASCII. It is at least as long as any form in which a history has it."""
    return json.dumps(arguments)


def with_signalled_decision(state: S, kind: str, raw: object, now: datetime) -> S:
    """Return the state after the decision of a signal. Raise ValueError if it fits nothing that waits."""
    match kind:
        case "approve" | "deny":
            approved = kind == "approve"
            return with_item_decision(state, parsed_decision(state, raw, now, approved=approved), approved, now)
        case "answer":
            return with_resolution(state, parsed_answer(state, raw), now)
        case _:
            return with_resolution(state, parsed_resolution(state, raw), now)


ANSWER_CHOICES: tuple[Choice, ...] = ("result", "skip", "abort")
"""Answer it, continue without an answer, or end the run."""


def build_question(
    name: str,
    text: str,
    now: datetime,
    *,
    activity_id: str = "",
    options: Sequence[str] = (),
    default: str = "",
    expires_s: float | None = None,
    approvers: Sequence[str] = (),
) -> Question:
    """Return a question with a free answer. `activity_id` is that of the call that asks."""
    given: dict[str, Any] = {"place": activity_id, "options": tuple(options), "default": default}
    given["expires_at"] = None if expires_s is None else now + timedelta(seconds=expires_s)
    given["approvers"] = tuple(approvers)
    return Question(
        question_id=f"question-{name}",
        kind="answer",
        since=now,
        text=text,
        choices=ANSWER_CHOICES,
        **{key: value for key, value in given.items() if value},
    )


def parsed_answer(state: Control, raw: object) -> Resolution:
    """Raise ValueError if `raw` is neither a text for the only open question nor an object with the question's id."""
    open_ids = [question.question_id for question in state.open_questions if question.kind == "answer"]
    fields = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {"text": raw}
    text, by, wanted = fields.get("text"), fields.get("by", ""), fields.get("question_id")
    if unknown := [str(key) for key in fields if key not in {"text", "by", "question_id"}]:
        raise ValueError(f"answer: unknown key {unknown[0]!r}; give a text, or question_id and text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("answer: give a text that is not empty, or question_id and text")
    if not open_ids:
        raise ValueError("no question is open")
    if wanted is None and len(open_ids) > 1:
        raise ValueError(f"several questions are open, name one by question_id: {', '.join(open_ids)}")
    if wanted is not None and wanted not in open_ids:
        raise ValueError(f"no question {wanted!r} is open; open: {', '.join(open_ids)}")
    resolution = {"escalation_id": wanted or open_ids[0], "choice": "result", "result": text}
    return parsed_resolution(state, resolution | {"by": as_text(by)})


def open_question_text(state: Control) -> str | None:
    """Return the text of the oldest open question with a free answer, or None."""
    return next((question.text for question in state.open_questions if question.kind == "answer"), None)
