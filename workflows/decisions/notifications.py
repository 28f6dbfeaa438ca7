"""What people outside are told, and of which questions they were told already.

Which command decides a question, ready to be copied.
"""

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from shlex import quote
from typing import Any

from orga.workflows.decisions.calls import shown_arguments
from orga.workflows.decisions.control import with_note
from orga.workflows.decisions.limits import budgets
from orga.workflows.types.notifications import Notification, NotifiedCall
from orga.workflows.types.questions import Wait
from orga.workflows.types.result import StopReason
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import Budgets
from orga.workflows.types.text import can_be_typed, in_full, one_line

ID_CHARS = 32
MAX_CALLS = 10
"""That one message shows; commands are for these only, so that nothing is approved unseen."""

MAX_ARGUMENTS_BYTES = 4_000
"""Of all calls of a message together: what does not fit whole is told by its size and digest."""

MAX_TEXT_CHARS = 300
MAX_APPROVERS = 20


def unannounced(state: AgentState) -> tuple[Wait, ...]:
    """Return the open questions that people outside are to be told of, and were not."""
    kinds = state.setup.notify if state.setup else ()
    return tuple(
        wait
        for wait in state.waits
        if wait.resolution is None and wait.kind in kinds and wait.wait_id not in state.announced
    )


def is_open(state: AgentState, wait_id: str) -> bool:
    """Return whether the question still waits for an answer."""
    return any(wait.wait_id == wait_id and wait.resolution is None for wait in state.waits)


def with_announced(state: AgentState, wait_id: str) -> AgentState:
    """Return the state that tells nobody of this question again; closed ones are forgotten."""
    return state.with_control(announced=tuple(each for each in (*state.announced, wait_id) if is_open(state, each)))


def with_failure(state: AgentState, about: str, error: str) -> AgentState:
    """Note that nobody could be told; the run goes on as if they had been."""
    return with_note(state, "NotificationFailed", about=about, error=error)


def is_end_told(state: AgentState) -> bool:
    """Return whether people are told of the end; of a delegated run its parent is told, nobody else.

    A fork of a delegated run has no parent.
    """
    is_delegated = bool(state.input.lineage.chain) and state.forked_from is None
    return state.setup is not None and "ended" in state.setup.notify and not is_delegated


def reopened(state: AgentState) -> AgentState:
    """Return the state that goes on where guidance came after the answer, while people were told of the end."""
    is_answered = state.stop is not None and state.stop[0] == "completed" and state.aborted is None
    return state.with_control(stop=None) if is_answered and state.inbox else state


def of_wait(state: AgentState, wait: Wait, run_id: str, now: datetime) -> Notification:
    """Return what is told of a question. Asked anew after a rewind it is another message."""
    held: list[dict[str, Any]] = wait.data.get("calls", [])
    told = _within_room(held[:MAX_CALLS] or _about(wait))
    shown = wait.with_calls(told)
    return _told(
        state,
        message_id=_message_id(state.origin, wait.wait_id, wait.since.isoformat()),
        event="waiting",
        kind=wait.kind,
        wait_id=wait.wait_id,
        question=_line(wait.question),
        queue="" if wait.queue == "default" else _line(wait.queue),
        limit=str(wait.data.get("limit", "")),
        calls=tuple(map(_call, told)),
        calls_left_out=max(len(held) - MAX_CALLS, 0),
        error=_line(str(wait.data.get("error", ""))),
        expires_at=min(filter(None, (str(call.get("expires_at", "")) for call in held)), default=""),
        commands=tuple(commands(run_id, shown, budgets(state, now))),
    )


def of_end(state: AgentState, stop: tuple[StopReason, str], run_id: str, execution: str) -> Notification:
    """Return what is told of the end; `execution` is the run in Temporal's sense, of which a rewind makes another.

    An end that guidance made go on after all is followed by a message of its own.
    """
    return _told(
        state,
        message_id=_message_id(state.origin, "ended", execution, str(state.iteration)),
        event="ended",
        reason=stop[0],
        detail=_line(stop[1]),
        commands=(f"orga status {quote(run_id)}",) if can_be_typed(run_id) else (),
    )


def _told(state: AgentState, **fields: Any) -> Notification:
    """Return a notification in which only what says something is set."""
    return Notification(agent=state.input.agent, **{key: value for key, value in fields.items() if value})


def _about(wait: Wait) -> list[dict[str, Any]]:
    """Return the one call that a question is about which holds none."""
    return [wait.data] if "tool" in wait.data else []


def _within_room(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls, those whose arguments have no room left marked by size and digest."""
    told, room = list[dict[str, Any]](), MAX_ARGUMENTS_BYTES
    for call in calls:
        size = len(in_full(str(call.get("arguments", ""))).encode())
        is_whole = "arguments_digest" not in call and size <= room
        room -= size if is_whole else 0
        told.append(call if is_whole else shown_arguments(str(call["arguments"]), -1) | call)
    return told


def _call(data: dict[str, Any]) -> NotifiedCall:
    digest = str(data.get("arguments_digest", ""))
    known: dict[str, Any] = {
        "tool": _line(str(data.get("tool", ""))),
        "arguments": "" if digest else in_full(str(data.get("arguments", ""))),
        "arguments_bytes": data.get("arguments_bytes", 0),
        "arguments_digest": digest,
        "id": data.get("id", ""),
        "reason": _line(str(data.get("reason", ""))),
        "approvers": tuple(_lines(data.get("approvers", ()))[:MAX_APPROVERS]),
    }
    return NotifiedCall(**{key: value for key, value in known.items() if value or key == "tool"})


def _lines(texts: Iterable[Any]) -> list[str]:
    return [_line(str(text)) for text in texts]


def _line(text: str) -> str:
    return one_line(text, MAX_TEXT_CHARS)


def _message_id(*parts: str) -> str:
    return f"msg_{sha256('/'.join(parts).encode()).hexdigest()[:ID_CHARS]}"


MORE = 2
"""Times the old limit: a suggestion to edit."""


def commands(run_id: str, wait: Wait, budgets: Budgets | None) -> list[str]:
    """Return the commands of which one decides what waits; the first is the likeliest.

    None where a command would not be what it looks like; none approves a call whose arguments are not shown whole.
    """
    if not can_be_typed(run_id):
        return []
    resolve = f"orga resolve {quote(run_id)} {quote(wait.wait_id)}"
    match wait.kind:
        case "escalation":
            return [f"{resolve} {choice}" for choice in ("--retry", "--skip", "--result TEXT", "--abort")]
        case "budget":
            return [_extend(run_id, wait, budgets), f"{resolve} --skip", f"{resolve} --abort"]
        case "approval" if calls := wait.data.get("calls"):
            held = " ".join([quote(run_id), *(quote(str(call["id"])) for call in calls)])
            is_whole = not any(call.get("arguments_digest") for call in calls)
            return [f"orga approve {held}{'' if is_whole else ' --show'}", f"orga deny {held}"]
        case _:
            return [f"orga status {quote(run_id)}"]


def _extend(run_id: str, wait: Wait, budgets: Budgets | None) -> str:
    limit = str(wait.data.get("limit") or "max_iterations")
    now = getattr(budgets, limit, None)
    value = "N" if not now else f"{now * MORE:.12g}"
    return f"orga extend {quote(run_id)} --{limit.replace('_', '-')} {value}"
