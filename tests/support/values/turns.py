"""Conversations as the loop makes them: the task, then turns, notes and pinned context."""

from hypothesis import strategies as st

from orga.workflows.types.conversation import Conversation, summary_message
from orga.workflows.types.messages import Message
from tests.support.values.core import a_call, conversation_of, user

TASK = user("the task", pinned=True)


def turn(number: int, results: int = 1, size: int = 100) -> list[Message]:
    """Return an assistant message with calls and their results."""
    ids = [f"c{number}_{index}" for index in range(results)]
    calls = tuple(a_call(call_id=call_id) for call_id in ids)
    answers = [Message.of_result(text="r" * size, call_id=call_id, tool="read") for call_id in ids]
    return [Message.of("assistant", calls=calls), *answers]


@st.composite
def conversations(draw: st.DrawFn, *, with_summary: bool = False) -> Conversation:
    """Draw the conversation of a run, with a summary of earlier messages if requested."""
    messages = [TASK]
    if with_summary and draw(st.booleans()):
        messages.append(summary_message("s" * draw(st.integers(1, 400))))
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["turn", "turn", "text", "note", "pinned"]))
        size = draw(st.integers(1, 400))
        if kind == "turn":
            messages += turn(number, draw(st.integers(1, 3)), size)
        elif kind == "text":
            messages.append(Message.of("assistant", "a" * size))
        else:
            messages.append(user("u" * size, pinned=kind == "pinned"))
    starts = [i for i, message in enumerate(messages) if message.role != "tool"]
    sent = draw(st.sampled_from([0, *starts[1:], len(messages)]))
    return conversation_of(*messages, sent=sent)


def are_paired(messages: tuple[Message, ...]) -> bool:
    """Return whether every call is followed by its result, and every result belongs to a call."""
    called = [call.call_id for message in messages for call in message.calls]
    return called == [message.call_id for message in messages if message.role == "tool"]
