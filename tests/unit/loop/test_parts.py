"""The parts of a message keep their order in every form, and only known kinds are accepted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orga.activities.adapters.models.kept_fields import block_part, wire_block
from orga.workflows.decisions.conversation import (
    estimated_tokens,
    message_size,
    reference_and_seen,
    with_all_as_base,
    with_message,
)
from orga.workflows.types.context import HashedMessages, MessageRef
from orga.workflows.types.conversation import Conversation, messages_as_sent
from orga.workflows.types.messages import Message, Reply, masked_message
from orga.workflows.types.parts import MediaPart, Parts, ResultPart, ToolCall, text_of, text_part, with_text
from tests.support.values.strategies import json_values, texts

THINK, AGAIN = (block_part({"type": "thinking", "thinking": "hm", "signature": name}) for name in ("s1", "s2"))
LOOK, READ = (ToolCall(call_id=name, name=name) for name in ("look", "read"))
PARTS: Parts = (THINK, text_part("one"), LOOK, AGAIN, text_part("two"), READ)
REPLY = Reply(parts=PARTS, finish="tool_calls")


def test_parts_keep_their_order_in_a_history() -> None:
    assert Reply.model_validate_json(REPLY.model_dump_json(exclude_unset=True)).parts == PARTS
    assert Message.model_validate_json(REPLY.message().model_dump_json(exclude_defaults=True)).parts == PARTS


def test_parts_keep_their_order_by_reference_and_after_continue_as_new() -> None:
    conversation = with_message(Conversation(), Message.of("user", "go", pinned=True))
    conversation = with_message(conversation, REPLY.message(), MessageRef(reply=0))
    context, seen = reference_and_seen(conversation)
    held = {0: REPLY}
    rebuilt = context.apply_to(HashedMessages(), lambda news: news.message or held[news.reply or 0].message())
    assert rebuilt.messages == seen.messages
    carried = Conversation.model_validate_json(with_all_as_base(conversation).model_dump_json(exclude_unset=True))
    assert (carried.messages[1].parts, carried.digest) == (PARTS, seen.digest)


def test_compaction_keeps_the_parts_of_the_remaining_messages() -> None:
    conversation = with_message(Conversation(), Message.of("user", "go", pinned=True))
    for said_so in (Message.of("assistant", "gone"), REPLY.message()):
        conversation = with_message(conversation, said_so)
    _, seen = reference_and_seen(with_all_as_base(conversation), drop=((1, 2),))
    assert [message.parts for message in seen.messages] == [(text_part("go"),), PARTS]


def test_text_calls_and_blocks_of_a_message_follow_from_its_parts() -> None:
    assert (REPLY.text, REPLY.calls, REPLY.blocks) == ("one\n\ntwo", (LOOK, READ), (THINK, AGAIN))
    assert REPLY.without_calls().parts == (THINK, text_part("one"), AGAIN, text_part("two"))
    assert REPLY.message().without_blocks().parts == (text_part("one"), LOOK, text_part("two"), READ)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(PARTS, (THINK, text_part("new"), LOOK, AGAIN, READ), id="in place of the first text"),
        pytest.param((THINK, LOOK), (THINK, text_part("new"), LOOK), id="before the calls if there was none"),
        pytest.param((), (text_part("new"),), id="alone"),
        pytest.param(
            (ResultPart(kind="result", call_id="c", text="old"),),
            (ResultPart(kind="result", call_id="c", text="new"),),
            id="as the text of a result",
        ),
    ],
)
def test_a_replaced_text_is_in_one_place(parts: Parts, expected: Parts) -> None:
    assert with_text(parts, "new") == expected
    assert text_of(with_text(parts, "")) == ""


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"kind": "hologram", "text": "x"}, id="unknown"),
        pytest.param({"kind": None, "call_id": "c", "name": "n"}, id="none"),
        pytest.param({"kind": ["text"], "text": "x"}, id="not a string"),
        pytest.param({"text": "x"}, id="missing, and no call"),
        pytest.param("text", id="no object"),
    ],
)
def test_a_part_of_an_unknown_kind_is_refused(part: Any) -> None:
    with pytest.raises(ValidationError):
        Message.model_validate({"role": "assistant", "parts": [{"kind": "text", "text": "a"}, part]})


PICTURE = MediaPart(kind="image", media_type="image/png", digest=f"sha256:{'0' * 64}", size=120_000, name="a.png")


def test_a_picture_is_kept_by_reference() -> None:
    message = Message(role="user", parts=(text_part("see"), PICTURE))
    assert Message.model_validate_json(message.model_dump_json(exclude_unset=True)) == message
    assert messages_as_sent((message,), ()) == (message,)
    assert message.media_in_words().text == "see\n\n[The image 'a.png' (image/png, 120 kB) cannot be shown to you]"


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", "sha256:" + "A" * 64, f"sha256:{'0' * 64}\n", "0" * 64])
def test_a_reference_with_another_kind_of_digest_is_refused(digest: str) -> None:
    with pytest.raises(ValidationError):
        MediaPart(kind="image", media_type="image/png", digest=digest, size=1)


def test_a_name_cannot_forge_a_line() -> None:
    part = MediaPart(kind="image", media_type="image/png", digest=PICTURE.digest, size=5, name="a]\n[Error] b.png")
    assert part.line() == "[image a)?(Error) b.png, 5 bytes]"


def test_a_masked_result_loses_its_pictures_even_if_its_text_is_short() -> None:
    message = Message.of_result("ok", "c1", "shot").with_media((PICTURE,))
    assert masked_message(message) == Message.of_result("ok", "c1", "shot")


def test_a_picture_counts_as_much_as_providers_count() -> None:
    small = message_size(Message(role="user", parts=(text_part("see"),)))
    assert estimated_tokens(message_size(Message(role="user", parts=(text_part("see"), PICTURE))) - small) > 1_600


@given(st.dictionaries(st.sampled_from(["type", "thinking", "text", "summary", "data"]) | texts, json_values))
def test_a_block_is_sent_back_unchanged(block: dict[str, Any]) -> None:
    assert wire_block(block_part(block)) == block


@pytest.mark.parametrize("kind", ["thinking", "reasoning.text", "reasoning.summary", "redacted_thinking", "", 7, None])
@given(text=texts | st.none(), key=st.sampled_from(["thinking", "text", "summary"]))
def test_a_block_of_a_known_type_is_sent_back_unchanged(kind: Any, text: str | None, key: str) -> None:
    block = {"type": kind, key: text, "signature": "s"}
    assert wire_block(block_part(block)) == block
