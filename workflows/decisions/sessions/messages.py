"""What becomes of a message: it waits for its turn, guides the turn under way, cuts it, or is refused."""

from __future__ import annotations

from pydantic_core import to_json

from orga.workflows.decisions.control.interventions import MAX_INBOX_BYTES, MAX_INBOX_ITEMS, guidance, with_guidance
from orga.workflows.decisions.limits import can_ask_for_budget
from orga.workflows.types.context import text_digest
from orga.workflows.types.record import parse_record
from orga.workflows.types.sessions.input import InterruptArgument, SessionMessage
from orga.workflows.types.sessions.session import QueuedMessage, Session, SessionState, TakenMessage

MAX_QUEUED_MESSAGES = 20
MAX_QUEUE_BYTES = 60_000
"""Of all messages that wait, as JSON: the state carries them beside the rest."""

MAX_TAKEN = 100
"""Ids of messages that are remembered, so that one which is sent again is not taken again."""

DIGEST_CHARS = 16

INTERRUPTED_BY_MESSAGE = "interrupted by a message"


class SessionBusy(ValueError):
    """A turn is under way, and the message was to be refused then."""


class QueueFull(ValueError):
    """Too many messages wait already."""


class SessionClosed(ValueError):
    """It takes no more messages."""


def parsed_message(raw: object) -> SessionMessage:
    """Return what somebody says.

    Raises:
        ValueError: It is empty, too long, or no message.
    """
    return parse_record(SessionMessage, raw, long=frozenset({"text"}))


def is_busy(session: Session) -> bool:
    """Return whether a turn is under way, or about to be."""
    return bool(session.turn or session.queue)


def turn_to_guide(state: SessionState) -> int:
    """Return the turn that reads guidance which comes now: the one under way, or about to begin; 0 where none does.

    An answer gives way to guidance, as does the end of its time while people are asked for more; no other ending does.
    """
    session = state.session
    may_go_on = not _is_ending_decided(state) or (state.stop is not None and state.stop[0] == "completed")
    if session.turn and not session.is_cut and may_go_on:
        return session.turn
    return session.queue[0].turn if session.queue else 0


def check_message(state: SessionState, message: SessionMessage) -> None:
    """Refuse a message that cannot be taken; one that was taken before can.

    Raises:
        ValueError: Other words were taken under its id.
        SessionClosed: The session is ending.
        SessionBusy: A turn is under way, and the message does not want to wait.
        QueueFull: There is no room.
    """
    session = state.session
    if (before := session.taken.get(message.message_id)) is not None:
        if before.digest != _message_digest(message):
            raise ValueError(
                f"message_id {message.message_id!r} was sent with other words, which became turn {before.turn}; "
                "what is new needs an id of its own"
            )
        return
    if session.closing or state.is_over or state.aborted is not None:
        raise SessionClosed("the session is ending and takes no more messages; start another one")
    if not is_busy(session):
        return
    if message.when_busy == "refuse":
        raise SessionBusy(f"turn {session.turn or session.queue[0].turn} is under way; wait for it, or enqueue")
    if message.when_busy == "steer" and turn_to_guide(state):
        size = state.inbox_bytes + len(message.text.encode())
        if len(state.inbox) >= MAX_INBOX_ITEMS or size > MAX_INBOX_BYTES:
            raise QueueFull("too much guidance waits for the turn under way already; wait until it is taken in")
        return
    size = sum(len(to_json(each.text)) for each in session.queue) + len(to_json(message.text))
    if len(session.queue) >= MAX_QUEUED_MESSAGES or size > MAX_QUEUE_BYTES:
        raise QueueFull(
            f"{len(session.queue)} messages wait already; {MAX_QUEUED_MESSAGES} may, of "
            f"{MAX_QUEUE_BYTES} bytes of JSON "
            "together: wait for a turn to end"
        )


def with_sent_message(state: SessionState, message: SessionMessage) -> SessionState:
    """Take a message in; what turn it is part of stands in `taken`. One that was taken before changes nothing."""
    session = state.session
    if message.message_id in session.taken:
        return state
    if message.when_busy == "steer" and (turn := turn_to_guide(state)):
        return _with_remembered_message(with_guidance(state, guidance("steer", (message.text,))), message, turn)
    cuts = message.when_busy == "interrupt"
    queued = QueuedMessage(turn=session.accepted + 1, text=message.text, cuts=cuts)
    queue = _with_queued_message(session.queue, queued)
    state = _with_remembered_message(state.with_session(accepted=queued.turn, queue=queue), message, queued.turn)
    return with_interrupted_turn(state, INTERRUPTED_BY_MESSAGE) if cuts else state


def _with_queued_message(queue: tuple[QueuedMessage, ...], queued: QueuedMessage) -> tuple[QueuedMessage, ...]:
    """Put one that cuts ahead of those that only wait, behind others that cut: the order in which they came."""
    ahead = sum(each.cuts for each in queue) if queued.cuts else len(queue)
    return (*queue[:ahead], queued, *queue[ahead:])


def _with_remembered_message(state: SessionState, message: SessionMessage, turn: int) -> SessionState:
    taken = {**state.session.taken, message.message_id: TakenMessage(turn=turn, digest=_message_digest(message))}
    return state.with_session(taken=dict(list(taken.items())[-MAX_TAKEN:]))


def _message_digest(message: SessionMessage) -> str:
    return text_digest(message.text)[:DIGEST_CHARS]


def with_interrupted_turn(state: SessionState, why: str) -> SessionState:
    """Cut the turn under way; one whose ending is decided ends as it does."""
    return state.with_control(stop=("aborted", why)).with_session(is_cut=True) if _can_be_interrupted(state) else state


def _can_be_interrupted(state: SessionState) -> bool:
    return bool(state.session.turn) and not _is_ending_decided(state) and state.aborted is None


def _is_ending_decided(state: SessionState) -> bool:
    """Return whether the turn under way ends for sure: one at a limit waits for people first, where they are asked."""
    return state.stop is not None and not can_ask_for_budget(state, state.stop)


def parsed_interrupt(raw: object) -> InterruptArgument:
    """Read what is to be cut.

    Raises:
        ValueError: It is neither a text nor what the update takes.
    """
    if raw is None or isinstance(raw, str):
        return InterruptArgument(why=raw or "")
    return parse_record(InterruptArgument, raw, long=frozenset({"why"}))


def check_interrupt(state: SessionState, turn: int | None = None) -> None:
    """Refuse to cut a turn where there is none to cut, or another than the one that is meant.

    Raises:
        ValueError: None is under way, or its ending is decided, or another one is.
    """
    if not state.session.turn or state.is_over:
        raise ValueError("no turn is under way")
    if turn not in {None, state.session.turn}:
        raise ValueError(f"turn {turn} is not under way, turn {state.session.turn} is")
    if not _can_be_interrupted(state):
        raise ValueError(f"turn {state.session.turn} is ending already")


def with_closing(state: SessionState) -> SessionState:
    """Let the session end after the turn under way."""
    return state.with_session(closing=True)
