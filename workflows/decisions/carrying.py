"""What a run that continues as new carries: all of its state where that fits a payload, else what cannot be missed."""

from itertools import pairwise

from pydantic_core import to_json

from workflows.decisions.conversation import settled, with_messages
from workflows.decisions.estimate import weight_of
from workflows.decisions.shares import shares
from workflows.decisions.window import latest_group
from workflows.types.clipped import MARKER_BYTES, bytes_in_json, clip_json
from workflows.types.digest import EMPTY
from workflows.types.messages import Message, Reply
from workflows.types.shortened import shortened
from workflows.types.state import AgentState, Conversation

MAX_CARRIED_BYTES = 1_900_000
"""Of the state as JSON; the server refuses a payload of 2 MB."""

MAX_OUTPUT_BYTES = 60_000
"""Of an answer that is no longer the last word, where room is short."""

MAX_STEP_CHARS = 100
"""Of the last error of a step, where room is short."""

SPARE_BYTES = 1_000


def carried(state: AgentState, run_id: str) -> AgentState:
    """Return the state for the next run of the chain: no reference may point into the history that ends."""
    whole = state.model_copy(update={"conversation": settled(state.conversation), "carried_by": run_id})
    if weight(whole) <= MAX_CARRIED_BYTES:
        return whole
    light = _lightened(whole)
    room = MAX_CARRIED_BYTES - SPARE_BYTES - weight(light.model_copy(update={"conversation": Conversation()}))
    return light.model_copy(update={"conversation": shrunk(light.conversation, room)})


def holding_up(state: AgentState, reply: Reply | None) -> AgentState:
    """Return the state with the reply that people hold up, or with none."""
    return state.model_copy(update={"pending": reply})


def weight(state: AgentState) -> int:
    """Return the bytes that the state takes in a history."""
    return len(state.model_dump_json(exclude_unset=True).encode())


def _lightened(state: AgentState) -> AgentState:
    """Return the state without what the setup repeats, and with less of what is only kept in case."""
    given = {"instructions": None} if state.setup else {}
    data = state.data if len(to_json(state.data)) <= MAX_OUTPUT_BYTES else None
    steps = {
        key: step.model_copy(update={"last_error": step.last_error[:MAX_STEP_CHARS]})
        for key, step in state.steps.items()
    }
    return state.model_copy(
        update={
            "input": state.input.model_copy(update=given),
            "results": {},
            "output": clip_json(state.output, MAX_OUTPUT_BYTES),
            "data": data,
            "steps": steps,
        }
    )


def shrunk(conversation: Conversation, room: int) -> Conversation:
    """Return the conversation within `room` bytes of JSON: the oldest messages go, what is left to stay is cut.

    The task and all from the model's last message on are kept, and a call with its results.
    """
    messages = _without_oldest(conversation.messages, room)
    messages = _cut(messages, room)
    fresh = with_messages(conversation.model_copy(update={"sent": 0, "digest": EMPTY}), messages)
    return settled(fresh)


def _without_oldest(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    starts = [i for i, message in enumerate(messages) if message.role != "tool"]
    latest = latest_group(messages)
    groups = [(start, stop) for start, stop in list(pairwise([*starts, len(messages)]))[1:] if start < latest]
    size = sum(map(weight_of, messages))
    gone: set[int] = set()
    for start, stop in sorted(groups, key=lambda group: (messages[group[0]].pinned, group[0])):
        if size <= room:
            break
        size -= sum(map(weight_of, messages[start:stop]))
        gone |= set(range(start, stop))
    return tuple(message for index, message in enumerate(messages) if index not in gone)


def _cut(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    """Share the room among the texts; the task stays whole."""
    if sum(map(weight_of, messages)) <= room:
        return messages
    frames = sum(weight_of(message.model_copy(update={"text": ""})) for message in messages)
    texts = [weight_of(m) - weight_of(m.model_copy(update={"text": ""})) for m in messages[1:]]
    left = max(room - frames - len(to_json(messages[0].text)) - MARKER_BYTES * len(messages), 0)
    cut = [_within(m, share) for m, share in zip(messages[1:], shares(texts, left), strict=True)]
    return (messages[0], *cut)


def _within(message: Message, room: int) -> Message:
    most = bytes_in_json(message.text, room)
    return message if most is None else shortened(message, most)
