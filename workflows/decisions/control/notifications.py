"""Notifications to people outside, and the record of questions that they have received.

This module also makes the Temporal UI's view of a question, and the commands that decide it.
"""

from collections.abc import Mapping
from hashlib import sha256
from shlex import quote
from typing import Any, TypeVar

from orga.workflows.decisions.control.questions import is_open, shown_question, size_and_digest
from orga.workflows.types.control import Control, Stop
from orga.workflows.types.questions import (
    ANSWER,
    Choice,
    Notification,
    NotifiedCall,
    Question,
    QuestionKind,
    ShownQuestion,
)
from orga.workflows.types.text import SUMMARY_CHARS, can_be_typed, full_field_text, markdown_code, one_line

S = TypeVar("S", bound=Control)

ID_CHARS = 32
MAX_CALLS = 10
"""Calls in one message. Commands are only for these, so that nothing is approved unseen."""

MAX_ARGUMENTS_BYTES = 4_000
"""Bytes of the arguments of all calls in a message. Arguments that do not fit are shown as size and digest."""

MAX_TEXT_CHARS = 300
MAX_APPROVERS = 20


def unannounced_questions(state: Control) -> tuple[Question, ...]:
    """Return the open questions that people outside should receive and have not received."""
    to_send = [question for question in state.open_questions if question.kind in state.terms.notify]
    return tuple(question for question in to_send if question.question_id not in state.announced)


def with_announced_question(state: S, question_id: str) -> S:
    """Return the state with this question marked as sent. Marks of closed questions are removed."""
    announced = (*state.announced, question_id)
    return state.with_control(announced=tuple(sent_id for sent_id in announced if is_open(state, sent_id)))


def with_notification_failure(state: S, about: str, error: str) -> S:
    """Add a note that nobody could be notified. The run continues as if somebody had been."""
    return state.with_note("NotificationFailed", about=about, error=error)


def question_notification(state: Control, question: Question, run_id: str) -> Notification:
    """Return the notification of a question, with its commands. A question after a rewind has another message id."""
    wait = shown_question(question)
    held_calls: list[dict[str, Any]] = wait.data.get("calls", [])
    own_call = [wait.data] if "tool" in wait.data else []
    shown = _calls_within_limit(held_calls[:MAX_CALLS] or own_call)
    expiries = [str(call["expires_at"]) for call in held_calls if call.get("expires_at")]
    return _notification(
        state,
        message_id=_message_id(state.origin, wait.wait_id, wait.since.isoformat()),
        event="waiting",
        kind=wait.kind,
        wait_id=wait.wait_id,
        question=_line(wait.question),
        queue="" if wait.queue == "default" else _line(wait.queue),
        limit=str(wait.data.get("limit", "")),
        calls=tuple(map(_notified_call, shown)),
        calls_left_out=max(len(held_calls) - MAX_CALLS, 0),
        error=_line(str(wait.data.get("error", ""))),
        expires_at=min(expiries, default=str(wait.data.get("expires_at", ""))),
        commands=tuple(decision_commands(run_id, wait.with_calls(shown) if held_calls else wait)),
    )


_WAITING_TEXTS: Mapping[QuestionKind, str] = {
    "approval": "approval",
    "answer": "an answer",
    "escalation": "a decision",
    "budget": "more budget",
    "result": "others",
}

_MINUTE = "%Y-%m-%d %H:%M"


def waiting_text(question: Question) -> str:
    """Return the subject of the wait on one line: `waiting for approval of send_letter`."""
    names = [str(item.call.get("name", "")) for item in question.undecided_items]
    calls = ", ".join("the answer" if name == ANSWER else name for name in names)
    subject = f" of {calls}" if calls else f": {question.text}"
    return one_line(f"waiting for {_WAITING_TEXTS[question.kind]}{subject}", SUMMARY_CHARS)


def waiting_lines(state: Control, run_id: str) -> list[str]:
    """Return the Temporal UI's lines about the pause and the open questions, with the commands that decide them."""
    resume = f": {markdown_code(f'orga resume {quote(run_id)}')} lets it go on" if can_be_typed(run_id) else ""
    paused = [f"- paused{resume}"] if state.paused else []
    return [*paused, *(line for each in state.open_questions for line in _question_lines(state, each, run_id))]


def _question_lines(state: Control, question: Question, run_id: str) -> list[str]:
    """Return the Temporal UI's lines about a question: its subject, its expiry, and the commands that decide it."""
    notification = question_notification(state, question, run_id)
    lines = [f"- {markdown_code(waiting_text(question))} since {question.since:{_MINUTE}} UTC"]
    lines += [f"  - {_call_markdown(call)}" for call in notification.calls]
    if notification.calls_left_out:
        lines.append(f"  - {notification.calls_left_out} more calls")
    if notification.error:
        lines.append(f"  - the error: {markdown_code(notification.error)}")
    if expiries := [item.expires_at for item in question.undecided_items]:
        lines.append(f"  - until {min(expiries):{_MINUTE}} UTC, then it is denied")
    if question.expires_at is not None:
        lines.append(f"  - until {question.expires_at:{_MINUTE}} UTC")
    return [*lines, *(f"  - to decide: {markdown_code(command)}" for command in notification.commands)]


def _call_markdown(call: NotifiedCall) -> str:
    arguments = f"with {call.arguments_bytes} bytes of arguments" if call.arguments_digest else call.arguments
    shown = markdown_code(_line(f"{'the answer' if call.tool == ANSWER else call.tool} {arguments}"))
    reason = f", because {markdown_code(call.reason)}" if call.reason else ""
    approvers = f", for {markdown_code(', '.join(call.approvers))} to decide" if call.approvers else ""
    return f"{shown}{reason}{approvers}"


def end_notification(state: Control, stop: Stop, run_id: str, execution: str) -> Notification:
    """Return the notification of the end. `execution` is the Temporal run id, which a rewind changes.

    If guidance resumes the run after this, its later end has a message of its own.
    """
    return _notification(
        state,
        message_id=_message_id(state.origin, "ended", execution, str(state.iteration)),
        event="ended",
        reason=stop.reason,
        detail=_line(stop.detail),
        commands=(f"orga status {quote(run_id)}",) if can_be_typed(run_id) else (),
    )


def _notification(state: Control, **fields: Any) -> Notification:
    return Notification(agent=state.name, **{key: value for key, value in fields.items() if value})


def _calls_within_limit(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls. Arguments for which no room is left are replaced by their size and digest."""
    shown, room = list[dict[str, Any]](), MAX_ARGUMENTS_BYTES
    for call in calls:
        size = len(full_field_text(str(call.get("arguments", ""))).encode())
        if "arguments_digest" in call:
            shown.append(call)
        elif size <= room:
            room -= size
            shown.append(call)
        else:
            shown.append(call | size_and_digest(str(call["arguments"])))
    return shown


def _notified_call(data: dict[str, Any]) -> NotifiedCall:
    digest = str(data.get("arguments_digest", ""))
    fields: dict[str, Any] = {
        "tool": _line(str(data.get("tool", ""))),
        "arguments": "" if digest else full_field_text(str(data.get("arguments", ""))),
        "arguments_bytes": data.get("arguments_bytes", 0),
        "arguments_digest": digest,
        "id": data.get("id", ""),
        "reason": _line(str(data.get("reason", ""))),
        "approvers": tuple(_line(str(name)) for name in data.get("approvers", ()))[:MAX_APPROVERS],
    }
    return NotifiedCall(**{key: value for key, value in fields.items() if value or key == "tool"})


def _line(text: str) -> str:
    return one_line(text, MAX_TEXT_CHARS)


def _message_id(*parts: str) -> str:
    return f"msg_{sha256('/'.join(parts).encode()).hexdigest()[:ID_CHARS]}"


_CHOICE_FLAGS: Mapping[Choice, str] = {
    "retry": "--retry",
    "skip": "--skip",
    "result": "--result TEXT",
    "abort": "--abort",
}


def _decision_command(run_id: str, wait: ShownQuestion, choice: Choice) -> str:
    """Return the command for this choice. A free answer has a command of its own."""
    if wait.kind == "answer" and choice == "result":
        return f"orga answer {quote(run_id)} TEXT --question {quote(wait.wait_id)}"
    return f"orga resolve {quote(run_id)} {quote(wait.wait_id)} {_CHOICE_FLAGS[choice]}"


_EXTENSION_FACTOR = 2
"""Factor from the old limit to the one in the suggested command, which a person may edit."""


def _extension_command(run_id: str, wait: ShownQuestion) -> str:
    limit, current = str(wait.data.get("limit") or "max_iterations"), wait.data.get("value")
    value = f"{current * _EXTENSION_FACTOR:.12g}" if isinstance(current, int | float) and current else "N"
    return f"orga extend {quote(run_id)} --{limit.replace('_', '-')} {value}"


def decision_commands(run_id: str, wait: ShownQuestion) -> list[str]:
    """Return the commands that decide an open question, the most likely first.

    Empty if the run's id could make a command different from what it looks like. If the arguments of a call are not
    shown in full, the command for an approval only shows them.
    """
    if not can_be_typed(run_id):
        return []
    commands = [_extension_command(run_id, wait)] if wait.kind == "budget" else []
    commands += [_decision_command(run_id, wait, choice) for choice in wait.choices]
    if calls := wait.data.get("calls"):
        ids = " ".join([quote(run_id), *(quote(str(call["id"])) for call in calls)])
        is_whole = not any(call.get("arguments_digest") for call in calls)
        commands += [f"orga approve {ids}{'' if is_whole else ' --show'}", f"orga deny {ids}"]
    if wait.kind == "result":
        complete = f"orga complete {quote(run_id)} {quote(wait.wait_id)}"
        commands += [f"{complete} --result JSON", f"{complete} --error TEXT"]
    return commands or [f"orga status {quote(run_id)}"]
