"""Signed parts are sent back in their original order: thinking between calls, text between thinking."""

from typing import Any

import pytest

from orga.activities.replies import MAX_CALLS, normalised_reply
from orga.workflows.types.messages import Message, Reply
from tests.support.model.providers import (
    Network,
    a_request,
    call_block,
    complete_request,
    message_events,
    provider,
    stream_response,
    text_block,
)


def thinking_block(signature: str) -> list[dict[str, Any]]:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return [start, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": signature}]


def shape_of(content: list[dict[str, Any]]) -> list[str]:
    """Return the identifying text of each block."""
    return [block.get("signature") or block.get("id") or block["text"] for block in content]


async def round_trip(*blocks: list[dict[str, Any]]) -> tuple[Reply, list[str]]:
    """Return a reply with these blocks as it is in a history, and the blocks that are sent back."""
    read, _, _ = await complete_request("anthropic", stream_response(*message_events(*blocks)))
    reply = Reply.model_validate_json(normalised_reply(read, ()).model_dump_json(exclude_unset=True))
    answers = [Message.of_result(call_id=call.call_id, text="done") for call in reply.calls]
    network = Network([stream_response(*message_events(text_block("ok")))])
    model = provider("anthropic", network)
    messages = (Message.of("user", "go"), reply.message(), *answers, Message.of("user", "on"))
    await model.complete(a_request(messages=messages), lambda text: None)
    await model.close()
    return reply, shape_of(network.body()["messages"][1]["content"])


THINK_1, THINK_2 = thinking_block("s1"), thinking_block("s2")
CALL_1, CALL_2 = call_block("c1", "look", "{}"), call_block("c2", "look", "{}")
TEXT_1, TEXT_2 = text_block("one", " more"), text_block("two")


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param([THINK_1, CALL_1, THINK_2, CALL_2], ["s1", "c1", "s2", "c2"], id="thinking between calls"),
        pytest.param([CALL_1, THINK_1, CALL_2], ["c1", "s1", "c2"], id="thinking after a call"),
        pytest.param(
            [THINK_1, TEXT_1, THINK_2, TEXT_2, CALL_1],
            ["s1", "one more", "s2", "two", "c1"],
            id="thinking between separate texts",
        ),
        pytest.param([THINK_1, CALL_1, TEXT_1, THINK_2, CALL_2], ["s1", "c1", "one more", "s2", "c2"], id="all"),
        pytest.param([THINK_1, THINK_2, TEXT_1, CALL_1], ["s1", "s2", "one more", "c1"], id="the usual order"),
        pytest.param([TEXT_1, CALL_1], ["one more", "c1"], id="no thinking"),
        pytest.param([CALL_1, TEXT_1], ["c1", "one more"], id="text after a call"),
    ],
)
async def test_signed_parts_are_sent_back_in_their_original_order(
    blocks: list[list[dict[str, Any]]], expected: list[str]
) -> None:
    _, sent = await round_trip(*blocks)
    assert sent == expected


async def test_dropped_calls_do_not_change_the_order_of_the_others() -> None:
    blocks = [block for n in range(MAX_CALLS + 3) for block in (thinking_block(f"s{n}"), call_block(f"c{n}", "look"))]
    _, sent = await round_trip(*blocks)
    kept = [name for n in range(MAX_CALLS) for name in (f"s{n}", f"c{n}")]
    assert sent[: len(kept)] == kept
