"""Signals: recorded when they arrive, taken in, in order, before the next reasoning step."""

from datetime import datetime

from pydantic_core import to_json

from orga.workflows.decisions.control import with_clock_updated, with_note
from orga.workflows.decisions.conversation import news_room, with_message
from orga.workflows.types.control import Intervention, InterventionKind
from orga.workflows.types.messages import Message
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clean_text, clip

MAX_SIGNAL_BYTES = 50_000
"""A longer text is cut: guidance belongs into a sentence, documents into files."""

MAX_INBOX_BYTES = 100_000
"""All that waits in the inbox: it has to fit into one payload. What arrives beyond it is cut to a line."""

MAX_INBOX_ITEMS = 400
"""What arrives beyond it is counted, and the model is told how much that was."""

MIN_SIGNAL_BYTES = 200

_CONTROLS = [chr(code) for code in range(32) if chr(code) not in "\n\r\t"]
"""Control characters, which take six times their room in a payload and could command a terminal."""

_TEXT = {
    "steer": "[Guidance from the operator] {}",
    "add_context": "[Context from the operator]\n{}",
}

UNHEARD = "[Guidance from the operator] {} more messages arrived while too many waited; they are lost."


def signal_text(arguments: tuple[object, ...]) -> str:
    """Return what a signal says, cut where it is too long."""
    return _cut(_said(arguments), MAX_SIGNAL_BYTES)


def guidance(kind: InterventionKind, arguments: tuple[object, ...]) -> Intervention:
    """Return what a signal says as guidance."""
    said = _said(arguments)
    text = _cut(said, MAX_SIGNAL_BYTES)
    return Intervention(kind=kind, text=text, size=0 if text == said else len(said.encode()))


def _said(arguments: tuple[object, ...]) -> str:
    """Return the text; any JSON is taken, since a handler that refuses would lose it."""
    parts = [part if isinstance(part, str) else _shown(part) for part in arguments if part is not None]
    text = clean_text("\n".join(parts))
    for control in _CONTROLS:  # `translate` takes 50 times as long, of all signals since the last task
        text = text.replace(control, " ")
    return text


def _shown(part: object) -> str:
    return to_json(part, fallback=str, inf_nan_mode="strings", bytes_mode="base64").decode()


def _cut(text: str, max_bytes: int) -> str:
    return clip(text, max_bytes, "signals are cut; put documents into files")


def with_guidance(state: AgentState, guidance: Intervention) -> AgentState:
    """Record guidance (steer, add_context) at the end of the inbox; one that is full only counts it.

    The journal tells of guidance that was cut.
    """
    if len(state.inbox) >= MAX_INBOX_ITEMS:
        return state.with_control(unheard=state.unheard + 1)
    text = _cut(guidance.text, max(MAX_INBOX_BYTES - state.inbox_bytes, MIN_SIGNAL_BYTES))
    kept, size = len(text.encode()), guidance.size
    if text != guidance.text:
        size = size or len(guidance.text.encode())
    inbox = (*state.inbox, guidance.with_cut(text, size) if size else guidance)
    state = state.with_control(inbox=inbox, inbox_bytes=state.inbox_bytes + kept)
    return (
        with_note(state, "InterventionReceived", kind="cut", of=guidance.kind, bytes=size, kept=kept) if size else state
    )


def within_inbox(items: tuple[Intervention, ...]) -> tuple[tuple[Intervention, ...], int]:
    """Return what one inbox holds of these, in order, and how many are too many; the journal was told of each."""
    kept, size = list[Intervention](), 0
    for item in items[:MAX_INBOX_ITEMS]:
        text = _cut(item.text, max(MAX_INBOX_BYTES - size, MIN_SIGNAL_BYTES))
        kept.append(item if text == item.text else item.with_cut(text, item.size or len(item.text.encode())))
        size += len(text.encode())
    return tuple(kept), max(len(items) - MAX_INBOX_ITEMS, 0)


def with_pause(state: AgentState, now: datetime) -> AgentState:
    """Stop the clock; a second pause changes nothing."""
    return state if state.paused else with_clock_updated(state.with_control(paused=True), now)


def with_resume(state: AgentState, now: datetime) -> AgentState:
    """Let the clock go on; a resume without a pause changes nothing."""
    return with_clock_updated(state.with_control(paused=False), now) if state.paused else state


def with_abort(state: AgentState, why: str) -> AgentState:
    """Record the abort; the first reason stays."""
    if state.aborted is not None:
        return state
    return state.with_control(aborted=why or "aborted by the operator")


def drain_inbox(state: AgentState) -> AgentState:
    """Put the inbox into the conversation, in order of arrival; what is too much for one step waits for the next."""
    if not state.inbox:
        return state
    conversation, taken, size, room = state.conversation, 0, 0, news_room(state) // 2
    for item in state.inbox:
        text = _TEXT[item.kind].format(item.text)
        size += len(text.encode())
        if taken and size > room:
            break
        conversation = with_message(conversation, Message(role="user", text=text, pinned=item.kind == "add_context"))
        taken += 1
    inbox = state.inbox[taken:]
    waiting = sum(len(item.text.encode()) for item in inbox)
    if state.unheard and not inbox:
        conversation = with_message(conversation, Message(role="user", text=UNHEARD.format(state.unheard)))
        state = state.with_control(unheard=0)
    return state.with_control(inbox=inbox, inbox_bytes=waiting).with_dialogue(conversation=conversation)
