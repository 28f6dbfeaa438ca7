"""Messages to a session: each waits for its turn, guides the current turn, interrupts it, or is refused."""

from pydantic_core import to_json

from orga.workflows.decisions.control.interventions import MAX_INBOX_BYTES, MAX_INBOX_ITEMS, guidance, with_guidance
from orga.workflows.decisions.conversation import attachments_problem
from orga.workflows.decisions.limits import can_ask_for_budget
from orga.workflows.types.context import text_digest
from orga.workflows.types.control import Stop
from orga.workflows.types.parts import MediaPart
from orga.workflows.types.record import parse_record
from orga.workflows.types.sessions.session import QueuedMessage, Session, SessionState, TakenMessage
from orga.workflows.types.sessions.session_input import InterruptArgument, SessionMessage

MAX_QUEUED_MESSAGES = 20
MAX_QUEUE_BYTES = 60_000
"""Bytes of JSON of all waiting messages. The state carries them."""

MAX_TAKEN = 100
"""Remembered ids of messages, so that a message that is sent again is not accepted again."""

DIGEST_CHARS = 16

INTERRUPTED_BY_MESSAGE = "interrupted by a message"


class SessionBusy(ValueError):
    """A turn is running, and the message asked to be refused in that case."""


class QueueFull(ValueError):
    """Too many messages wait already."""


class SessionClosed(ValueError):
    """The session accepts no more messages."""


def parsed_message(raw: object) -> SessionMessage:
    return parse_record(SessionMessage, raw, long=frozenset({"text"}))


def is_busy(session: Session) -> bool:
    return bool(session.turn or session.queue)


def turn_to_guide(state: SessionState) -> int:
    """Return the turn that reads guidance which arrives now: the current or the next one, or 0 if there is none.

    A turn with a completed answer still reads guidance, and so does a turn at a limit while people are asked for more.
    A turn with another ending does not.
    """
    session = state.session
    may_go_on = not _is_ending_decided(state) or (state.stop is not None and state.stop.reason == "completed")
    if session.turn and not session.is_cut and may_go_on:
        return session.turn
    return session.queue[0].turn if session.queue else 0


def check_message(state: SessionState, message: SessionMessage) -> None:
    """Raise ValueError if a message cannot be accepted. A message that was accepted before passes."""
    session = state.session
    if (before := session.taken.get(message.message_id)) is not None:
        if before.digest != _message_digest(message):
            raise ValueError(
                f"message_id {message.message_id!r} was sent with another text, which became turn {before.turn}; "
                "a new message needs an id of its own"
            )
        return
    if session.closing or state.is_over or state.aborted is not None:
        raise SessionClosed("the session is ending and takes no more messages; start another one")
    if problem := attachments_problem(_media(message), state.config.context_token_budget):
        raise ValueError(problem)
    if not is_busy(session):
        return
    if message.when_busy == "refuse":
        raise SessionBusy(f"turn {session.turn or session.queue[0].turn} is under way; wait, or use when_busy enqueue")
    if message.when_busy == "steer" and turn_to_guide(state):
        size = state.inbox_bytes + len(message.text.encode())
        if len(state.inbox) >= MAX_INBOX_ITEMS or size > MAX_INBOX_BYTES:
            raise QueueFull("too much guidance is waiting for the current turn; wait until the turn has read it")
        return
    size = sum(_queued_bytes(each.text, each.media) for each in session.queue)
    size += _queued_bytes(message.text, _media(message))
    if len(session.queue) >= MAX_QUEUED_MESSAGES or size > MAX_QUEUE_BYTES:
        raise QueueFull(
            f"{len(session.queue)} messages wait already; at most {MAX_QUEUED_MESSAGES} may wait, with "
            f"{MAX_QUEUE_BYTES} bytes of JSON together; send this one after a turn has ended"
        )


def with_sent_message(state: SessionState, message: SessionMessage) -> SessionState:
    """Accept a message. `taken` then holds its turn. A message that was accepted before changes nothing."""
    session = state.session
    if message.message_id in session.taken:
        return state
    if message.when_busy == "steer" and (turn := turn_to_guide(state)):
        return _with_remembered_message(with_guidance(state, guidance("steer", message.text)), message, turn)
    cuts = message.when_busy == "interrupt"
    queued = QueuedMessage(turn=session.accepted + 1, text=message.text, cuts=cuts).with_media(_media(message))
    # a message that interrupts comes before those that only wait, and after others that interrupt
    position = sum(each.cuts for each in session.queue) if cuts else len(session.queue)
    queue = (*session.queue[:position], queued, *session.queue[position:])
    state = _with_remembered_message(state.with_session(accepted=queued.turn, queue=queue), message, queued.turn)
    return with_interrupted_turn(state, INTERRUPTED_BY_MESSAGE) if cuts else state


def _with_remembered_message(state: SessionState, message: SessionMessage, turn: int) -> SessionState:
    taken = {**state.session.taken, message.message_id: TakenMessage(turn=turn, digest=_message_digest(message))}
    return state.with_session(taken=dict(list(taken.items())[-MAX_TAKEN:]))


def _media(message: SessionMessage) -> tuple[MediaPart, ...]:
    return tuple(attachment.part() for attachment in message.attachments)


def _queued_bytes(text: str, media: tuple[MediaPart, ...]) -> int:
    return len(to_json(text)) + (len(to_json(media)) if media else 0)


def _message_digest(message: SessionMessage) -> str:
    attached = "".join(attachment.digest for attachment in message.attachments)
    return text_digest(message.text + attached)[:DIGEST_CHARS]


def with_interrupted_turn(state: SessionState, why: str) -> SessionState:
    """Interrupt the current turn. If its ending is decided, nothing changes."""
    if not _can_be_interrupted(state):
        return state
    return state.with_control(stop=Stop("aborted", why)).with_session(is_cut=True)


def _can_be_interrupted(state: SessionState) -> bool:
    return bool(state.session.turn) and not _is_ending_decided(state) and state.aborted is None


def _is_ending_decided(state: SessionState) -> bool:
    """Return True if the current turn's ending is certain. At a limit people may be asked first."""
    return state.stop is not None and not can_ask_for_budget(state, state.stop)


def parsed_interrupt(raw: object) -> InterruptArgument:
    """Raise ValueError if it is neither a text nor an object that the update accepts."""
    if raw is None or isinstance(raw, str):
        return InterruptArgument(why=raw or "")
    return parse_record(InterruptArgument, raw, long=frozenset({"why"}))


def check_interrupt(state: SessionState, turn: int | None = None) -> None:
    """Raise ValueError if no turn is running, if it is not the named one, or if its ending is decided."""
    if not state.session.turn or state.is_over:
        raise ValueError("no turn is under way")
    if turn not in {None, state.session.turn}:
        raise ValueError(f"turn {turn} is not under way, turn {state.session.turn} is")
    if not _can_be_interrupted(state):
        raise ValueError(f"turn {state.session.turn} is ending already")


def with_closing(state: SessionState) -> SessionState:
    return state.with_session(closing=True)
