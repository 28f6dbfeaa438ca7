"""What a provider signs goes back where it stood: thinking between calls, text between thinking."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.replies import MAX_CALLS, normalised
from orga.workflows.types.messages import Message, Reply, in_order, order_of
from tests.support.model.providers import (
    Network,
    a_request,
    call_block,
    completed,
    message_events,
    provider,
    streamed,
    text_block,
)


def thinking_block(signature: str) -> list[dict[str, Any]]:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return [start, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": signature}]


def shape_of(content: list[dict[str, Any]]) -> list[str]:
    """Return each block by what tells it apart."""
    return [block.get("signature") or block.get("id") or block["text"] for block in content]


async def round_trip(*blocks: list[dict[str, Any]]) -> tuple[Reply, list[str]]:
    """Return a reply of these blocks as it stands in a history, and how it goes back."""
    read, _, _ = await completed("anthropic", streamed(*message_events(*blocks)))
    reply = Reply.model_validate_json(normalised(read, ()).model_dump_json(exclude_unset=True))
    answers = [Message(role="tool", call_id=call.call_id, text="done") for call in reply.calls]
    network = Network([streamed(*message_events(text_block("ok")))])
    model = provider("anthropic", network)
    messages = (Message(role="user", text="go"), reply.message(), *answers, Message(role="user", text="on"))
    await model.complete(a_request(messages=messages), lambda text: None)
    await model.close()
    return reply, shape_of(network.body()["messages"][1]["content"])


THINK_1, THINK_2 = thinking_block("s1"), thinking_block("s2")
CALL_1, CALL_2 = call_block("c1", "look", "{}"), call_block("c2", "look", "{}")
TEXT_1, TEXT_2 = text_block("one", " more"), text_block("two")


@pytest.mark.parametrize(
    ("blocks", "expected", "is_usual"),
    [
        pytest.param([THINK_1, CALL_1, THINK_2, CALL_2], ["s1", "c1", "s2", "c2"], False, id="thinking between calls"),
        pytest.param([CALL_1, THINK_1, CALL_2], ["c1", "s1", "c2"], False, id="thinking behind a call"),
        pytest.param(
            [THINK_1, TEXT_1, THINK_2, TEXT_2, CALL_1],
            ["s1", "one more", "s2", "two", "c1"],
            False,
            id="thinking between texts, which stay apart",
        ),
        pytest.param([THINK_1, CALL_1, TEXT_1, THINK_2, CALL_2], ["s1", "c1", "one more", "s2", "c2"], False, id="all"),
        pytest.param([THINK_1, THINK_2, TEXT_1, CALL_1], ["s1", "s2", "one more", "c1"], True, id="the usual order"),
        pytest.param([TEXT_1, CALL_1], ["one more", "c1"], True, id="no thinking"),
        pytest.param([CALL_1, TEXT_1], ["one more", "c1"], True, id="without thinking the order binds nobody"),
    ],
)
async def test_what_was_signed_goes_back_where_it_stood(
    blocks: list[list[dict[str, Any]]], expected: list[str], is_usual: bool
) -> None:
    reply, sent = await round_trip(*blocks)
    assert sent == expected
    assert (reply.order == ()) is is_usual
    assert ("order" in reply.model_dump(exclude_unset=True)) is not is_usual


async def test_calls_that_were_not_taken_in_leave_the_others_in_their_places() -> None:
    blocks = [block for n in range(MAX_CALLS + 3) for block in (thinking_block(f"s{n}"), call_block(f"c{n}", "look"))]
    _, sent = await round_trip(*blocks)
    kept = [name for n in range(MAX_CALLS) for name in (f"s{n}", f"c{n}")]
    assert sent[: len(kept)] == kept


PARTS = st.lists(st.sampled_from(["block", "call", "text:3", "text:0", "text:-1", "text:x", "text:99999999999", "?"]))


@given(PARTS, st.lists(st.integers(0, 9)), st.text(max_size=9), st.lists(st.integers(10, 19)))
def test_whatever_the_order_says_each_part_comes_once(
    order: list[str], blocks: list[int], text: str, calls: list[int]
) -> None:
    """An order comes from a history, and what it orders may have been cut since."""
    parts = list(in_order(order, blocks, text, calls))
    assert [part for part in parts if isinstance(part, int) and part < 10] == blocks
    assert [part for part in parts if isinstance(part, int) and part >= 10] == calls
    assert "".join(part for part in parts if isinstance(part, str)) == text


@given(st.lists(st.sampled_from(["block", "call", "text"])))
def test_an_order_brings_back_what_it_was_made_of(kinds: list[Any]) -> None:
    joined: list[Any] = [kind for n, kind in enumerate(kinds) if kind != "text" or n == 0 or kinds[n - 1] != "text"]
    order = order_of((kind, 2 if kind == "text" else 0) for kind in joined)
    text = "ab" * joined.count("text")
    parts = list(in_order(order, ["block"] * joined.count("block"), text, ["call"] * joined.count("call")))
    if order:
        assert ["text" if part == "ab" else part for part in parts] == joined
    else:
        assert "block" not in joined or [k for k in joined if k == "block"] == joined[: joined.count("block")]
