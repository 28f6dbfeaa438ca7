"""The conversation by reference: the reader resolves exactly the messages of the writer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.conversation import (
    estimated_tokens,
    full_digest,
    message_size,
    reference_and_seen,
    with_all_as_base,
    with_message,
)
from orga.workflows.types.context import ContextRef, DigestMismatch, HashedMessages, MessageRef, messages_digest
from orga.workflows.types.conversation import Conversation, Summary, summary_message
from orga.workflows.types.messages import Message, Ranges, messages_without, with_masks
from tests.support.values.core import conversation_of, user
from tests.support.values.strategies import LAW, messages

Op = tuple[str, Message, int, int]
STEPS = ["add", "reply", "hand", "drop", "mask", "sum up", "count", "settle"]
ops = st.lists(st.tuples(st.sampled_from(STEPS), messages, st.integers(), st.integers()))


class Reader:
    """The other side: it has the base of the previous call, and numbered replies."""

    def __init__(self) -> None:
        self.base = HashedMessages()
        self.recorded: list[Message] = []
        self.summaries: dict[str, str] = {}

    def resolve(self, news: MessageRef) -> Message:
        if news.summary is not None:
            return summary_message(self.summaries[news.summary])
        return news.message if news.message is not None else self.recorded[news.reply or 0]

    def read(self, context: ContextRef) -> tuple[Message, ...]:
        over_the_wire = ContextRef.model_validate_json(context.model_dump_json(exclude_unset=True))
        self.base = over_the_wire.apply_to(self.base, self.resolve)
        return self.base.messages


@LAW
@given(ops)
def test_the_reader_resolves_exactly_the_messages_of_the_writer(steps: list[Op]) -> None:
    conversation, reader = Conversation(), Reader()
    for kind, message, a, b in steps:
        if kind == "add":
            conversation = with_message(conversation, message)
        elif kind == "reply":
            reader.recorded.append(message)
            conversation = with_message(conversation, message, MessageRef(reply=len(reader.recorded) - 1))
        elif kind == "settle":
            conversation = with_all_as_base(conversation)
            reader.base = HashedMessages().plus(conversation.messages)
        else:
            part = _range(conversation.sent, a, b)
            drop = part if kind in {"drop", "sum up", "count"} else ()
            mask = part if kind == "mask" else ()
            call = f"{len(reader.summaries)}.summary" if kind == "sum up" else ""
            summary = Summary(drop=drop, text=message.text, call=call) if kind in {"sum up", "count"} else None
            if call:
                reader.summaries[call] = message.text
            expected = _compacted(conversation.messages[: conversation.sent], drop, mask, summary)
            expected += conversation.messages[conversation.sent :]
            context, conversation = reference_and_seen(conversation, drop, mask, summary)
            assert reader.read(context) == conversation.messages == expected
        assert full_digest(conversation) == messages_digest(conversation.messages)
        assert conversation.tokens == sum(estimated_tokens(message_size(m)) for m in conversation.messages)
        assert conversation.size == sum(message_size(m) for m in conversation.messages)


def _compacted(messages: tuple[Message, ...], drop: Ranges, mask: Ranges, summary: Summary | None) -> Any:
    kept = messages_without(with_masks(messages, mask), drop)
    if summary is None or not drop:
        return kept
    return (*kept[: drop[0][0]], summary_message(summary.text), *kept[drop[0][0] :])


def _range(sent: int, a: int, b: int) -> Ranges:
    start, stop = sorted((a % (sent + 1), b % (sent + 1)))
    return ((start, stop),) if start < stop else ()


@LAW
@given(st.lists(messages, min_size=1, max_size=4), messages, st.data())
def test_a_changed_message_is_a_mismatch(earlier: list[Message], other: Message, data: st.DataObject) -> None:
    sent = data.draw(st.integers(0, len(earlier)), "sent")
    index = data.draw(st.integers(0, len(earlier) - 1), "index")
    context, _ = reference_and_seen(conversation_of(*earlier, sent=sent))
    changed = [*earlier]
    changed[index] = other if other != earlier[index] else other.with_text(other.text + "!")
    forged = context.model_copy(update={"news": tuple(MessageRef(message=m) for m in changed[sent:])})
    with pytest.raises(DigestMismatch):
        forged.apply_to(HashedMessages().plus(tuple(changed[:sent])), _in_full)


def _in_full(news: MessageRef) -> Message:
    assert news.message is not None
    return news.message


THREE = (user("a"), user("b"), user("c"))


@pytest.mark.parametrize(
    "base",
    [
        pytest.param((), id="a base that is missing"),
        pytest.param(THREE[:2], id="a base that is too short"),
        pytest.param((*THREE, user("d")), id="a base that is too long"),
        pytest.param((THREE[1], THREE[0], THREE[2]), id="a base in another order"),
    ],
)
def test_another_base_is_a_mismatch(base: tuple[Message, ...]) -> None:
    context, _ = reference_and_seen(with_message(conversation_of(*THREE, sent=3), user("news")))
    with pytest.raises(DigestMismatch):
        context.apply_to(HashedMessages().plus(base), _in_full)


def test_the_reference_does_not_grow_with_the_run() -> None:
    """The input of a model call has constant size."""
    sizes: list[int] = []
    conversation = conversation_of(*THREE)
    for _ in range(100):
        context, conversation = reference_and_seen(with_message(conversation, user("the same")))
        sizes.append(len(context.model_dump_json(exclude_unset=True)))
    assert sizes[-1] <= sizes[1] + 4


@pytest.mark.parametrize(
    ("compaction", "keys"),
    [
        pytest.param({}, {"news", "head"}, id="nothing is dropped"),
        pytest.param({"drop": ((1, 2),)}, {"drop", "news", "head"}, id="a message is dropped"),
        pytest.param({"mask": ((1, 2),)}, {"mask", "news", "head"}, id="a result is masked"),
        pytest.param(
            {"drop": ((1, 2),), "summary": Summary(drop=((1, 2),), text="b", call="2.summary")},
            {"drop", "summary", "news", "head"},
            id="a message is summarised",
        ),
    ],
)
def test_only_needed_fields_are_written(compaction: dict[str, Any], keys: set[str]) -> None:
    context, _ = reference_and_seen(conversation_of(*THREE, sent=3), **compaction)
    assert context.model_dump(exclude_unset=True).keys() == keys


def test_a_models_summary_is_written_once_and_then_referenced() -> None:
    summary = Summary(drop=((1, 3),), text="b and c, " * 100, call="2.summary")
    context, seen = reference_and_seen(conversation_of(*THREE, sent=3), summary.drop, summary=summary)
    assert context.model_dump(mode="json", exclude_unset=True)["summary"] == {"summary": "2.summary"}
    assert seen.messages == (THREE[0], summary_message(summary.text))


def test_a_summary_is_no_longer_ready_after_its_use_or_the_end_of_its_run() -> None:
    """Its id would be unknown in the next run."""
    summary = Summary(drop=((1, 2),), text="b", call="2.summary")
    conversation = conversation_of(*THREE, sent=3).model_copy(update={"ready": summary})
    _, seen = reference_and_seen(conversation, summary.drop, summary=summary)
    assert (seen.ready, with_all_as_base(conversation).ready) == (None, None)


@pytest.mark.parametrize(
    ("news", "written"),
    [
        pytest.param(MessageRef(reply=8), "8", id="a reply by its iteration"),
        pytest.param(MessageRef(result="8.0"), '"8.0"', id="a result by its activity"),
        pytest.param(
            MessageRef(message=Message.of("user", "a")),
            '{"role":"user","parts":[{"kind":"text","text":"a"}]}',
            id="a message in full",
        ),
        pytest.param(MessageRef(summary="8.summary"), '{"summary":"8.summary"}', id="a summary by its activity"),
    ],
)
def test_new_messages_are_written_in_their_shortest_form(news: MessageRef, written: str) -> None:
    assert news.model_dump_json(exclude_unset=True) == written
    assert MessageRef.model_validate_json(written) == news


@LAW
@given(messages)
def test_a_new_message_is_read_back_unchanged(message: Message) -> None:
    news = MessageRef(message=message)
    assert MessageRef.model_validate_json(news.model_dump_json(exclude_unset=True)) == news


def test_after_a_model_call_no_message_is_new() -> None:
    _, seen = reference_and_seen(conversation_of(*THREE, sent=1))
    assert (seen.sent, seen.news, seen.digest) == (3, (), messages_digest(THREE))


def test_a_conversation_as_base_has_the_same_digest() -> None:
    conversation = conversation_of(*THREE, sent=1)
    whole = with_all_as_base(conversation)
    assert (whole.sent, whole.news, whole.messages) == (3, (), THREE)
    assert whole.digest == full_digest(conversation)
