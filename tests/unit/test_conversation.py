"""The conversation by reference: what the reader resolves is exactly what the writer meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import conversation_of, user
from tests.support.strategies import LAW, messages
from workflows.decisions.conversation import added, full_digest, handed_over, settled
from workflows.decisions.estimate import size_of, tokens_of
from workflows.types.context import Chain, ContextRef, DigestMismatch, News, Ranges, without
from workflows.types.digest import digest_of
from workflows.types.messages import Message
from workflows.types.state import Conversation

Op = tuple[str, Message, int, int]
STEPS = ["add", "reply", "hand", "drop", "settle"]
ops = st.lists(st.tuples(st.sampled_from(STEPS), messages, st.integers(), st.integers()))


class Reader:
    """The other side: it knows the base of the call before, and replies by number."""

    def __init__(self) -> None:
        self.base = Chain()
        self.recorded: list[Message] = []

    def resolve(self, news: News) -> Message:
        return news.message if news.message is not None else self.recorded[news.reply or 0]

    def read(self, context: ContextRef) -> tuple[Message, ...]:
        over_the_wire = ContextRef.model_validate_json(context.model_dump_json(exclude_unset=True))
        self.base = over_the_wire.applied(self.base, self.resolve)
        return self.base.messages


@LAW
@given(ops)
def test_the_reader_finds_exactly_the_writers_messages(steps: list[Op]) -> None:
    conversation, reader = Conversation(), Reader()
    for kind, message, a, b in steps:
        if kind == "add":
            conversation = added(conversation, message)
        elif kind == "reply":
            reader.recorded.append(message)
            conversation = added(conversation, message, News(reply=len(reader.recorded) - 1))
        elif kind == "settle":
            conversation = settled(conversation)
            reader.base = Chain().plus(conversation.messages)
        else:
            drop = _range(conversation.sent, a, b) if kind == "drop" else ()
            expected = without(conversation.messages[: conversation.sent], drop)
            expected += conversation.messages[conversation.sent :]
            context, conversation = handed_over(conversation, drop)
            assert reader.read(context) == conversation.messages == expected
        assert full_digest(conversation) == digest_of(conversation.messages)
        assert conversation.tokens == sum(tokens_of(size_of(m)) for m in conversation.messages)
        assert conversation.size == sum(size_of(m) for m in conversation.messages)


def _range(sent: int, a: int, b: int) -> Ranges:
    start, stop = sorted((a % (sent + 1), b % (sent + 1)))
    return ((start, stop),) if start < stop else ()


@LAW
@given(st.lists(messages, min_size=1, max_size=4), messages, st.data())
def test_a_changed_message_is_a_mismatch(said: list[Message], other: Message, data: st.DataObject) -> None:
    sent = data.draw(st.integers(0, len(said)), "sent")
    index = data.draw(st.integers(0, len(said) - 1), "index")
    context, _ = handed_over(conversation_of(*said, sent=sent))
    changed = [*said]
    changed[index] = other if other != said[index] else other.model_copy(update={"text": other.text + "!"})
    forged = context.model_copy(update={"news": tuple(News(message=m) for m in changed[sent:])})
    with pytest.raises(DigestMismatch):
        forged.applied(Chain().plus(tuple(changed[:sent])), _in_full)


def _in_full(news: News) -> Message:
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
    context, _ = handed_over(added(conversation_of(*THREE, sent=3), user("news")))
    with pytest.raises(DigestMismatch):
        context.applied(Chain().plus(base), _in_full)


def test_the_reference_does_not_grow_with_the_run() -> None:
    """A model call's input is constant in the length of the run."""
    sizes: list[int] = []
    conversation = conversation_of(*THREE)
    for _ in range(100):
        context, conversation = handed_over(added(conversation, user("the same")))
        sizes.append(len(context.model_dump_json(exclude_unset=True)))
    assert sizes[-1] <= sizes[1] + 4


@pytest.mark.parametrize(
    ("drop", "keys"),
    [
        pytest.param((), {"news", "head"}, id="nothing is left out"),
        pytest.param(((1, 2),), {"drop", "news", "head"}, id="a message is left out"),
    ],
)
def test_only_what_is_needed_is_written(drop: Ranges, keys: set[str]) -> None:
    context, _ = handed_over(conversation_of(*THREE, sent=3), drop)
    assert context.model_dump(exclude_unset=True).keys() == keys


@pytest.mark.parametrize(
    ("news", "written"),
    [
        pytest.param(News(reply=8), "8", id="a reply by its iteration"),
        pytest.param(News(result="8.0"), '"8.0"', id="a result by its activity"),
        pytest.param(
            News(message=Message(role="user", text="a")), '{"role":"user","text":"a"}', id="a message in full"
        ),
    ],
)
def test_news_are_written_as_what_they_are(news: News, written: str) -> None:
    assert news.model_dump_json(exclude_unset=True) == written
    assert News.model_validate_json(written) == news


@LAW
@given(messages)
def test_a_message_that_is_news_is_read_as_it_was_written(message: Message) -> None:
    news = News(message=message)
    assert News.model_validate_json(news.model_dump_json(exclude_unset=True)) == news


def test_after_the_hand_over_nothing_is_news() -> None:
    _, seen = handed_over(conversation_of(*THREE, sent=1))
    assert (seen.sent, seen.news, seen.digest) == (3, (), digest_of(THREE))


def test_a_settled_conversation_is_all_base_and_has_the_same_digest() -> None:
    conversation = conversation_of(*THREE, sent=1)
    whole = settled(conversation)
    assert (whole.sent, whole.news, whole.messages) == (3, (), THREE)
    assert whole.digest == full_digest(conversation)
