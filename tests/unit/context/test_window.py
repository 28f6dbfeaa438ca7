"""The sliding window: what it drops, and what it never drops."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orga.workflows.decisions.compaction import KEEP_SHARE, messages_to_drop
from orga.workflows.decisions.conversation import (
    MAX_CONVERSATION_BYTES,
    estimated_message_tokens,
    estimated_tokens,
    message_size,
)
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.messages import Message, Ranges, messages_without
from tests.support.values.core import conversation_of, user
from tests.support.values.strategies import LAW
from tests.support.values.turns import TASK, are_paired, conversations, turn

NO_LIMIT = 10**9


budgets = st.integers(20, 1_500)


@LAW
@given(conversations(), budgets)
def test_ranges_are_sorted_disjoint_and_within_the_seen_messages(conversation: Conversation, budget: int) -> None:
    bounds = [bound for start_stop in messages_to_drop(conversation, budget) for bound in start_stop]
    assert bounds == sorted(set(bounds))
    assert all(1 <= bound <= conversation.sent for bound in bounds)


@LAW
@given(conversations(), budgets)
def test_task_pinned_messages_and_all_since_the_last_reply_stay(conversation: Conversation, budget: int) -> None:
    drop = messages_to_drop(conversation, budget)
    kept = messages_without(conversation.messages, drop)
    last = _stays_from(conversation)
    assert kept[0] == TASK
    if _pinned_fit(conversation, budget):
        assert [m for m in kept if m.pinned] == [m for m in conversation.messages if m.pinned]
    assert not any(start <= index < stop for start, stop in drop for index in range(last, len(conversation.messages)))


@LAW
@given(conversations(), budgets)
def test_a_call_is_never_separated_from_its_results(conversation: Conversation, budget: int) -> None:
    """A provider refuses a call without its result, and a result without its call."""
    kept = messages_without(conversation.messages, messages_to_drop(conversation, budget))
    assert are_paired(kept)


@LAW
@given(conversations(), budgets)
def test_the_result_starts_with_a_user_message_and_fits_if_possible(conversation: Conversation, budget: int) -> None:
    drop = messages_to_drop(conversation, budget)
    kept = messages_without(conversation.messages, drop)
    assert kept[0].role == "user"
    if estimated_message_tokens(kept) <= budget:
        return
    everything = _all_droppable(conversation)
    assert _indexes(drop) >= everything, "over the budget although more could be dropped"


@LAW
@given(conversations(), budgets)
def test_nothing_is_dropped_if_all_fits_and_otherwise_no_more_than_needed(
    conversation: Conversation, budget: int
) -> None:
    drop = messages_to_drop(conversation, budget)
    if conversation.tokens <= budget:
        assert drop == ()
        return
    dropped = _groups(conversation, _indexes(drop))
    assume(dropped and _pinned_fit(conversation, budget))
    newest = dropped[-1]
    without_newest = [m for i, m in enumerate(conversation.messages) if i in newest or i not in _indexes(drop)]
    assert estimated_message_tokens(tuple(without_newest)) > budget * KEEP_SHARE


@LAW
@given(conversations(), budgets)
def test_the_oldest_messages_are_dropped_first(conversation: Conversation, budget: int) -> None:
    dropped = {i for i in _indexes(messages_to_drop(conversation, budget)) if not conversation.messages[i].pinned}
    may_go = sorted(_all_droppable(conversation))
    assert sorted(dropped) == may_go[: len(dropped)]


@LAW
@given(conversations(), budgets, st.integers(0, 300))
def test_a_reserve_is_left_free(conversation: Conversation, budget: int, reserve: int) -> None:
    drop = messages_to_drop(conversation, budget, reserve)
    kept = messages_without(conversation.messages, drop)
    if conversation.tokens <= budget:
        assert drop == ()
    elif estimated_message_tokens(kept) > budget * KEEP_SHARE - reserve:
        stays = _all_droppable(conversation) - _indexes(drop)
        assert not stays or (
            estimated_message_tokens(kept) <= budget - reserve and _seen_last(conversation) <= min(stays)
        ), "only what the model saw last may exceed the kept share"


@pytest.mark.parametrize(
    ("messages", "sent", "budget", "expected"),
    [
        pytest.param([TASK, *turn(1)], 3, NO_LIMIT, (), id="all fits"),
        pytest.param([user("t" * 10_000, pinned=True)], 0, 500, (), id="the task alone is over the budget"),
        pytest.param([user("t" * 10_000, pinned=True)], 1, 500, (), id="the task alone, already seen"),
        pytest.param([TASK, *turn(1, size=9_000)], 1, 500, (), id="new messages are never dropped"),
        pytest.param([TASK, *turn(1, size=9_000)], 3, 500, (), id="the last group is not dropped"),
        pytest.param(
            [TASK, *turn(1, size=9_000), user("[Not run] 3 more calls")],
            *(4, 500, ()),
            id="results before a note that the model of a continued run has not seen",
        ),
        pytest.param(
            [TASK, Message.of("assistant", "a" * 9_000), user("Go on exactly where it stops")],
            *(3, 500, ()),
            id="an answer to be continued is not dropped",
        ),
        pytest.param(
            [TASK, user("a" * 9_000), user("b")], 3, 500, ((1, 2),), id="guidance before any reply may be dropped"
        ),
        pytest.param([TASK, *turn(1, size=9_000), *turn(2)], 5, 500, ((1, 3),), id="an old turn is dropped"),
        pytest.param(
            [TASK, *turn(1, 2, 900), *turn(2, 1, 900), *turn(3)], 8, 150, ((1, 6),), id="neighbours form one range"
        ),
        pytest.param(
            [TASK, *turn(1), user("keep", pinned=True), *turn(2), *turn(3)],
            8,
            40,
            ((1, 3), (4, 6)),
            id="pinned messages separate the ranges",
        ),
        pytest.param(
            [TASK, user("k" * 9_000, pinned=True), *turn(1)],
            4,
            500,
            ((1, 2),),
            id="pinned messages over the budget are dropped",
        ),
        pytest.param(
            [TASK, user("k" * 900, pinned=True), user("l" * 900, pinned=True), *turn(1, size=9_000)],
            *(5, 500, ((1, 2),)),
            id="the oldest pinned ones, until the rest fits",
        ),
        pytest.param(
            [TASK, user("k" * 9_000, pinned=True), *turn(1)], 1, 500, (), id="pinned messages stay until they were seen"
        ),
        pytest.param(
            [TASK, *turn(1, size=900), *turn(2, size=900)],
            3,
            500,
            ((1, 3),),
            id="the last seen group, if new messages need the space",
        ),
        pytest.param(
            [TASK, *turn(1, size=900), *turn(2, size=300)], 3, 500, (), id="the last seen group stays if there is space"
        ),
    ],
)
def test_messages_to_drop(messages: list[Message], sent: int, budget: int, expected: Ranges) -> None:
    assert messages_to_drop(conversation_of(*messages, sent=sent), budget) == expected


@pytest.mark.parametrize(
    ("pinned_sizes", "expected"),
    [
        pytest.param((500_000, 400_000), (), id="pinned messages that fit a payload stay"),
        pytest.param((600_000, 500_000), ((1, 2),), id="the oldest is dropped otherwise"),
        pytest.param((500_000, 300_000, 600_000), ((1, 3),), id="as many as needed"),
    ],
)
def test_the_payload_limit_also_drops_pinned_messages(pinned_sizes: tuple[int, ...], expected: Ranges) -> None:
    pinned = [user("p" * size, pinned=True) for size in pinned_sizes]
    conversation = conversation_of(TASK, *pinned, *turn(1), sent=len(pinned) + 3)
    assert messages_to_drop(conversation, NO_LIMIT) == expected


def test_the_payload_limit_applies_even_within_the_budget() -> None:
    turns = [message for number in range(20) for message in turn(number, size=60_000)]
    conversation = conversation_of(TASK, *turns, sent=41)
    kept = messages_without(conversation.messages, messages_to_drop(conversation, NO_LIMIT))
    assert sum(message_size(message) for message in kept) <= MAX_CONVERSATION_BYTES * KEEP_SHARE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Hello, world!", 3 + 7, id="13 bytes"),
        pytest.param("", 1 + 7, id="an empty text still has a frame"),
        pytest.param("é" * 33, 20 + 7, id="bytes count, not characters"),
    ],
)
def test_tokens_of_a_text(text: str, expected: int) -> None:
    assert estimated_tokens(message_size(user(text))) == expected


def _indexes(drop: Ranges) -> set[int]:
    return {index for start, stop in drop for index in range(start, stop)}


def _has_replied(conversation: Conversation) -> bool:
    return any(message.role == "assistant" for message in conversation.messages[conversation.sent :])


def _seen_last(conversation: Conversation) -> int:
    seen = conversation.messages[: conversation.sent]
    return max((i for i, m in enumerate(seen) if m.role == "assistant"), default=max(conversation.sent - 1, 0))


def _stays_from(conversation: Conversation) -> int:
    """Return the index from which nothing is ever dropped: the first new message, or what the model saw last."""
    return conversation.sent if _has_replied(conversation) else _seen_last(conversation)


def _pinned_fit(conversation: Conversation, budget: int) -> bool:
    return (
        estimated_message_tokens(tuple(m for m in conversation.messages[1 : conversation.sent] if m.pinned)) <= budget
    )


def _all_droppable(conversation: Conversation) -> set[int]:
    """Return which of the unpinned messages may be dropped."""
    seen = conversation.messages[: conversation.sent]
    groups = [g for g in _groups(conversation, set(range(len(seen))))[1:] if g[0] < _stays_from(conversation)]
    return {index for group in groups if not seen[group[0]].pinned for index in group}


def _groups(conversation: Conversation, indexes: set[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for index in sorted(indexes):
        if conversation.messages[index].role != "tool":
            groups.append([])
        groups[-1].append(index)
    return groups
