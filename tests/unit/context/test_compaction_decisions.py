"""The strategies of `context_strategy`: what each of them removes, and what none of them removes."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.compaction import (
    MIN_UNMASKED_MESSAGES,
    NO_COMPACTION,
    Compaction,
    compaction,
    compaction_data,
    latest_group,
    messages_to_drop,
    reserved_tokens,
    results_to_mask,
    summary_tokens,
)
from orga.workflows.decisions.conversation import (
    MAX_CONVERSATION_BYTES,
    estimated_message_tokens,
    message_size,
    reference_and_seen,
)
from orga.workflows.types.context import ContextRef, MessageRef
from orga.workflows.types.conversation import BYTES_PER_TOKEN, SUMMARY_HEADER, Conversation, Summary, summary_message
from orga.workflows.types.input import ContextStrategy
from orga.workflows.types.messages import Message, masked_message, messages_within, range_indexes
from tests.support.values.core import conversation_of, user
from tests.support.values.strategies import LAW
from tests.support.values.turns import TASK, are_paired, conversations, turn

budgets = st.integers(20, 1_500)
strategies: st.SearchStrategy[ContextStrategy] = st.sampled_from(get_args(ContextStrategy))


def compacted(conversation: Conversation, plan: Compaction) -> tuple[Message, ...]:
    """Return what the model sees if the summary has its maximum length."""
    text = "s" * (plan.summary_tokens * 4)
    summary = Summary(drop=plan.drop, text=text) if plan.summary_tokens else None
    return reference_and_seen(conversation, plan.drop, plan.mask, summary)[1].messages


@LAW
@given(conversations(with_summary=True), strategies, budgets)
def test_task_pinned_messages_and_the_last_group_stay_unchanged(
    conversation: Conversation, strategy: ContextStrategy, budget: int
) -> None:
    seen = compacted(conversation, compaction(conversation, strategy, budget))
    has_replied = any(m.role == "assistant" for m in conversation.messages[conversation.sent :])
    stays = conversation.sent if has_replied else latest_group(conversation.messages[: conversation.sent])
    last = conversation.messages[stays:]
    assert seen[0] == TASK
    if estimated_message_tokens(tuple(m for m in conversation.messages[1:] if m.pinned)) <= budget:
        assert [m for m in seen if m.pinned] == [m for m in conversation.messages if m.pinned]
    assert seen[len(seen) - len(last) :] == last


@LAW
@given(conversations(with_summary=True), strategies, budgets)
def test_a_call_is_never_separated_from_its_results_and_a_user_message_is_first(
    conversation: Conversation, strategy: ContextStrategy, budget: int
) -> None:
    seen = compacted(conversation, compaction(conversation, strategy, budget))
    assert are_paired(seen)
    assert seen[0].role == "user"


@LAW
@given(conversations(with_summary=True), strategies, budgets)
def test_nothing_is_removed_if_all_fits(conversation: Conversation, strategy: ContextStrategy, budget: int) -> None:
    if conversation.tokens <= budget:
        assert compaction(conversation, strategy, budget) is NO_COMPACTION


@LAW
@given(conversations(with_summary=True), strategies, budgets)
def test_every_compaction_makes_the_conversation_shorter(
    conversation: Conversation, strategy: ContextStrategy, budget: int
) -> None:
    plan = compaction(conversation, strategy, budget)
    if plan.drop or plan.mask:
        assert estimated_message_tokens(compacted(conversation, plan)) < conversation.tokens


@LAW
@given(conversations(), budgets)
def test_the_strategy_none_never_drops_anything(conversation: Conversation, budget: int) -> None:
    assert compaction(conversation, "none", budget) == NO_COMPACTION


@LAW
@given(conversations(), budgets)
def test_masking_is_enough_or_the_oldest_messages_are_dropped_as_well(conversation: Conversation, budget: int) -> None:
    plan = compaction(conversation, "observation_masking", budget)
    if conversation.tokens <= budget:
        return
    assert not range_indexes(plan.mask) & range_indexes(plan.drop)
    old = conversation.messages[: max(len(conversation.messages) - MIN_UNMASKED_MESSAGES, 0)]
    changed = [i for i, m in enumerate(old) if masked_message(m) != m and i < latest_group(_sent(conversation))]
    assert range_indexes(plan.mask) == set(changed) - range_indexes(plan.drop)
    if estimated_message_tokens(compacted(conversation, Compaction(mask=results_to_mask(conversation)))) <= budget:
        assert plan.drop == ()
    else:
        assert range_indexes(plan.drop) or messages_to_drop(conversation, budget) == ()


@LAW
@given(conversations(with_summary=True), budgets)
def test_a_summary_is_shorter_than_what_it_replaces_and_then_everything_possible_fits(
    conversation: Conversation, budget: int
) -> None:
    plan = compaction(conversation, "anchored_summary", budget)
    may_go = messages_to_drop(conversation, 0)
    reserve = reserved_tokens(summary_tokens(budget))
    if plan == NO_COMPACTION:
        due = estimated_message_tokens(_unsummed(conversation, messages_to_drop(conversation, budget, reserve)))
        assert conversation.tokens <= budget or due <= reserve
        return
    assert plan.summary_tokens == summary_tokens(budget)
    assert estimated_message_tokens(_unsummed(conversation, plan.drop)) > reserve
    if estimated_message_tokens(compacted(conversation, plan)) > budget:
        assert range_indexes(plan.drop) >= {i for i in range_indexes(may_go) if not conversation.messages[i].pinned}


@LAW
@given(conversations(with_summary=True), budgets)
def test_there_is_at_most_one_summary_at_the_place_of_the_first_dropped_message(
    conversation: Conversation, budget: int
) -> None:
    plan = compaction(conversation, "anchored_summary", budget)
    seen = compacted(conversation, plan)
    assert sum(message.summary for message in seen) <= 1
    if plan.drop:
        place = plan.drop[0][0]
        assert seen[:place] == conversation.messages[:place]
        assert seen[place].summary


def _sent(conversation: Conversation) -> tuple[Message, ...]:
    return conversation.messages[: conversation.sent]


def _unsummed(conversation: Conversation, drop: Any) -> tuple[Message, ...]:
    return tuple(message for message in messages_within(conversation.messages, drop) if not message.summary)


FIVE_TURNS = [TASK, *(message for number in range(5) for message in turn(number, size=1_000))]


@pytest.mark.parametrize(
    ("messages", "sent", "budget", "expected"),
    [
        pytest.param(FIVE_TURNS, 11, 5_000, NO_COMPACTION, id="all fits"),
        pytest.param(FIVE_TURNS, 11, 1_500, Compaction(mask=((2, 3), (4, 5))), id="all older than six messages"),
        pytest.param(FIVE_TURNS, 9, 1_500, Compaction(mask=((2, 3), (4, 5))), id="also if some are new"),
        pytest.param(
            [*FIVE_TURNS[:9], user("go on")],
            *(10, 1_300, Compaction(mask=((2, 3),))),
            id="the sixth from the end keeps its text",
        ),
        pytest.param(
            [TASK, *turn(1, 9, 1_000)],
            11,
            1_500,
            NO_COMPACTION,
            id="the results of the last call, however many they are",
        ),
        pytest.param(
            [*FIVE_TURNS[:3], *turn(2, 8, 1_000)],
            *(3, 1_500, Compaction(((1, 3),))),
            id="what the model saw last, if the new messages need the space",
        ),
        pytest.param([TASK, *turn(1, size=9_000), *turn(2)], 5, 500, Compaction(((1, 3),)), id="six or fewer: window"),
        pytest.param(
            FIVE_TURNS,
            11,
            1_000,
            Compaction(((1, 7),), ()),
            id="still too long, so the oldest are dropped without placeholders",
        ),
        pytest.param(
            [TASK, *turn(1, 1, 20), *turn(2, 2, 1_000), *turn(3, 1, 3_000), *turn(4), *turn(5)],
            *(12, 1_300, Compaction(mask=((4, 6),))),
            id="neighbours form one range, a short result stays",
        ),
    ],
)
def test_observation_masking(messages: list[Message], sent: int, budget: int, expected: Compaction) -> None:
    assert compaction(conversation_of(*messages, sent=sent), "observation_masking", budget) == expected


def test_a_masked_message_is_not_masked_again() -> None:
    """A second mask would only invalidate the provider's prompt cache."""
    conversation = conversation_of(*FIVE_TURNS, sent=11)
    plan = compaction(conversation, "observation_masking", 1_500)
    _, seen = reference_and_seen(conversation, plan.drop, plan.mask)
    assert results_to_mask(seen) == ()


SUMMARY = summary_message("s" * 300)
LONGEST_SUMMARY = 300 * BYTES_PER_TOKEN + len(SUMMARY_HEADER)


@pytest.mark.parametrize(
    ("messages", "budget", "expected"),
    [
        pytest.param(FIVE_TURNS, 5_000, NO_COMPACTION, id="all fits"),
        pytest.param(
            FIVE_TURNS, 1_500, Compaction(((1, 9),), summary_tokens=300), id="the oldest, down to 70 % with the summary"
        ),
        pytest.param(
            [TASK, SUMMARY, *FIVE_TURNS[1:]],
            1_500,
            Compaction(((1, 10),), summary_tokens=300),
            id="with an earlier summary",
        ),
        pytest.param(
            [TASK, SUMMARY, *turn(1, size=9_000)],
            1_500,
            NO_COMPACTION,
            id="an earlier summary alone is not replaced",
        ),
        pytest.param(
            [TASK, *turn(1, size=800), *turn(2, size=9_000)],
            *(1_500, NO_COMPACTION),
            id="no summary that could be longer than what it replaces",
        ),
        pytest.param(
            [TASK, user("a" * LONGEST_SUMMARY), *turn(2, size=9_000)],
            *(1_500, NO_COMPACTION),
            id="no summary that could be as long",
        ),
        pytest.param(
            [TASK, user("a" * (LONGEST_SUMMARY + 4)), *turn(2, size=9_000)],
            *(1_500, Compaction(((1, 2),), summary_tokens=300)),
            id="one token more is enough",
        ),
        pytest.param(
            [TASK, *turn(1, size=1_500), *turn(2, size=9_000)],
            *(1_500, Compaction(((1, 3),), summary_tokens=300)),
            id="a shorter summary, even if that is not enough",
        ),
        pytest.param(
            [TASK, *turn(0, size=5_000), user("keep", pinned=True), *turn(1, size=5_000), *turn(2)],
            *(1_500, Compaction(((1, 3), (4, 6)), summary_tokens=300)),
            id="pinned messages stay in between",
        ),
    ],
)
def test_anchored_summary(messages: list[Message], budget: int, expected: Compaction) -> None:
    assert compaction(conversation_of(*messages, sent=len(messages)), "anchored_summary", budget) == expected


@pytest.mark.parametrize("strategy", get_args(ContextStrategy))
def test_the_payload_limit_applies_to_every_strategy(strategy: ContextStrategy) -> None:
    """A longer conversation could not be passed to the next run."""
    turns = [message for number in range(20) for message in turn(number, size=60_000)]
    conversation = conversation_of(TASK, *turns, sent=41)
    seen = compacted(conversation, compaction(conversation, strategy, 10**8))
    assert sum(message_size(message) for message in seen) <= MAX_CONVERSATION_BYTES


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param(ContextRef(), None, id="nothing was removed"),
        pytest.param(
            ContextRef(drop=((1, 3), (5, 6))),
            {"strategy": "sliding_window", "messages_dropped": 3},
            id="the window",
        ),
        pytest.param(
            ContextRef(mask=((1, 3),)),
            {"strategy": "observation_masking", "messages_dropped": 0, "messages_masked": 2},
            id="masks",
        ),
        pytest.param(
            ContextRef(mask=((3, 4),), drop=((1, 3),)),
            {"strategy": "observation_masking", "messages_dropped": 2, "messages_masked": 1},
            id="masks, then the window",
        ),
        pytest.param(
            ContextRef(drop=((1, 3),), summary=MessageRef(summary="7.summary")),
            {"strategy": "anchored_summary", "messages_dropped": 2, "summary": "model"},
            id="a model's summary",
        ),
        pytest.param(
            ContextRef(drop=((1, 3),), summary=MessageRef(message=summary_message("2 messages"))),
            {"strategy": "anchored_summary", "messages_dropped": 2, "summary": "fallback"},
            id="a fallback summary",
        ),
    ],
)
def test_the_journal_records_this_compaction(context: ContextRef, expected: dict[str, Any] | None) -> None:
    over_the_wire = ContextRef.model_validate_json(context.model_dump_json(exclude_unset=True))
    assert compaction_data(over_the_wire) == expected
