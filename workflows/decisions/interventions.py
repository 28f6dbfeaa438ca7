"""Signals: recorded when they arrive, taken in, in order, before the next reasoning step."""

from datetime import datetime

from pydantic_core import to_json

from workflows.decisions.clock import ticking
from workflows.decisions.conversation import added
from workflows.types.clipped import clip
from workflows.types.messages import Message
from workflows.types.state import AgentState, Intervention
from workflows.types.text import clean_text

MAX_SIGNAL_BYTES = 50_000
"""A longer text is cut: guidance belongs into a sentence, documents into files."""

MAX_TAKEN_BYTES = 500_000
"""Of guidance in one model call, whose input has to stay below 2 MB."""

MAX_INBOX_BYTES = 400_000
"""All that waits in the inbox: it has to fit into one payload. What arrives beyond it is cut to a line."""

MIN_SIGNAL_BYTES = 200

_CONTROLS = {code: " " for code in range(32) if chr(code) not in "\n\r\t"}
"""Control characters, which take six times their room in a payload and could command a terminal."""

_TEXT = {
    "steer": "[Guidance from the operator] {}",
    "add_context": "[Context from the operator]\n{}",
}


def signal_text(arguments: tuple[object, ...]) -> str:
    """Return what a signal says; any JSON is taken, since a handler that refuses would lose it."""
    parts = [part if isinstance(part, str) else _shown(part) for part in arguments if part is not None]
    text = clean_text("\n".join(parts)).translate(_CONTROLS)
    return _cut(text, MAX_SIGNAL_BYTES)


def _shown(part: object) -> str:
    return to_json(part, fallback=str, inf_nan_mode="strings", bytes_mode="base64").decode()


def _cut(text: str, max_bytes: int) -> str:
    return clip(text, max_bytes, "signals are cut; put documents into files")


def with_guidance(state: AgentState, guidance: Intervention) -> AgentState:
    """Record guidance (steer, add_context) at the end of the inbox."""
    text = _cut(guidance.text, max(MAX_INBOX_BYTES - state.inbox_bytes, MIN_SIGNAL_BYTES))
    inbox = (*state.inbox, guidance.model_copy(update={"text": text}))
    return state.model_copy(update={"inbox": inbox, "inbox_bytes": state.inbox_bytes + len(text.encode())})


def with_pause(state: AgentState, now: datetime) -> AgentState:
    """Stop the clock; a second pause changes nothing."""
    return state if state.paused else ticking(state.model_copy(update={"paused": True}), now)


def with_resume(state: AgentState, now: datetime) -> AgentState:
    """Let the clock go on; a resume without a pause changes nothing."""
    return ticking(state.model_copy(update={"paused": False}), now) if state.paused else state


def with_abort(state: AgentState, why: str) -> AgentState:
    """Record the abort; the first reason stays."""
    if state.aborted is not None:
        return state
    return state.model_copy(update={"aborted": why or "aborted by the operator"})


def taken_in(state: AgentState) -> AgentState:
    """Put the inbox into the conversation, in order of arrival; what is too much for one step waits for the next."""
    conversation, taken, size = state.conversation, 0, 0
    for item in state.inbox:
        text = _TEXT[item.kind].format(item.text)
        size += len(text.encode())
        if taken and size > MAX_TAKEN_BYTES:
            break
        conversation = added(conversation, Message(role="user", text=text, pinned=item.kind == "add_context"))
        taken += 1
    if not taken:
        return state
    inbox = state.inbox[taken:]
    waiting = sum(len(item.text.encode()) for item in inbox)
    return state.model_copy(update={"conversation": conversation, "inbox": inbox, "inbox_bytes": waiting})
