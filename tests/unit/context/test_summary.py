"""A summary: when the run can afford it, what it costs, and the fallback without a model."""

from typing import Any

import pytest

from orga.workflows.decisions.compaction import (
    MAX_SUMMARY_TOKENS,
    MIN_SUMMARY_TOKENS,
    can_afford_summary,
    fallback_summary,
    ready_summary,
    reserved_tokens,
    summary_tokens,
    with_summary,
)
from orga.workflows.decisions.conversation import estimated_message_tokens
from orga.workflows.types.conversation import summary_message
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Message, Ranges, Reply
from orga.workflows.types.models.usage import Usage, UsageTotals
from orga.workflows.types.state import AgentState
from tests.support.values.core import a_call, a_setup, a_state, conversation_of, user
from tests.support.values.turns import TASK, turn

UNUSED = UsageTotals()
CALLS = (a_call("read", "a"), a_call("read", "b"), a_call("search", "c"))
TWO_CALLS = [Message.of("assistant", calls=CALLS[:2]), *(Message.of_result(call_id=i) for i in "ab")]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        pytest.param(32_000, MAX_SUMMARY_TOKENS, id="the maximum"),
        pytest.param(5_000, 1_000, id="up to a fifth of the budget"),
        pytest.param(4_999, 999, id="rounded down"),
        pytest.param(0, MIN_SUMMARY_TOKENS, id="at least the minimum"),
    ],
)
def test_summary_tokens(budget: int, expected: int) -> None:
    assert summary_tokens(budget) == expected


@pytest.mark.parametrize("limit", [MIN_SUMMARY_TOKENS, 300, MAX_SUMMARY_TOKENS])
def test_the_reserve_is_enough_for_the_longest_summary(limit: int) -> None:
    assert estimated_message_tokens((summary_message("s" * limit * 4),)) == reserved_tokens(limit)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            [user("a"), *TWO_CALLS, Message.of("assistant", calls=CALLS[2:]), Message.of_result(call_id="c")],
            "Left out: messages 6, tool calls 3, results 3.\nTools called: read x2, search x1.",
            id="counts, with the most called tools first",
        ),
        pytest.param([user("a"), user("b")], "Left out: messages 2, tool calls 0, results 0.", id="no calls"),
        pytest.param(
            [summary_message("all of January"), user("b")],
            "Left out: messages 1, tool calls 0, results 0.\nBefore that:\nall of January",
            id="an earlier summary is kept",
        ),
        pytest.param(
            [Message.of("assistant", calls=tuple(a_call(f"t{n:02}", str(n)) for n in range(22)))],
            "Left out: messages 1, tool calls 22, results 0.\nTools called: "
            + ", ".join(f"t{n:02} x1" for n in range(20))
            + ", and 2 more.",
            id="only the first tools of many",
        ),
    ],
)
def test_fallback_summary(messages: list[Message], expected: str) -> None:
    assert fallback_summary(tuple(messages), 4_000) == expected


def test_a_fallback_summary_is_bounded() -> None:
    text = fallback_summary((summary_message("s" * 10_000), user("a")), 1_000)
    assert text.startswith("Left out: messages 1, ")
    assert len(text.encode()) <= 1_000


def a_run(usage: UsageTotals = UNUSED, calibration: float = 1.0, **config: Any) -> AgentState:
    """Return a run whose next model call has 1,000 estimated tokens."""
    conversation = conversation_of(TASK).model_copy(update={"tokens": 900, "frame": 100})
    setup = a_setup(config=LoopConfig(**config))
    return a_state(setup=setup, usage=usage, calibration=calibration, conversation=conversation)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(a_run(), True, id="no limit is near"),
        pytest.param(a_run(max_total_tokens=1_401), True, id="everything is read once, for two replies"),
        pytest.param(a_run(max_total_tokens=1_400), False, id="one token less"),
        pytest.param(a_run(UsageTotals(total_tokens=1), max_total_tokens=1_401), False, id="one token is spent"),
        pytest.param(a_run(calibration=2.0, max_total_tokens=2_400), False, id="calibrated tokens"),
        pytest.param(a_run(UsageTotals(model_calls=3), max_model_calls=5), True, id="two calls are left"),
        pytest.param(a_run(UsageTotals(model_calls=4), max_model_calls=5), False, id="the last is for the next step"),
    ],
)
def test_affords_summary(state: AgentState, expected: bool) -> None:
    assert can_afford_summary(state, 200) is expected


DROP: Ranges = ((1, 3),)
TURNS = a_state(conversation=conversation_of(TASK, *turn(1), *turn(2), sent=5), iteration=6)
USED = Usage(input_tokens=90, output_tokens=9)
COUNTED = UsageTotals(input_tokens=90, output_tokens=9, total_tokens=99, model_calls=1, cost_usd=0.5)
FALLBACK = "Left out: messages 2, tool calls 1, results 1.\nTools called: read x1."


@pytest.mark.parametrize(
    ("reply", "text", "call", "usage"),
    [
        pytest.param(Reply.of("read it", usage=USED, cost_usd=0.5), "read it", "7.summary", COUNTED, id="a summary"),
        pytest.param(Reply.of(" \n", usage=USED, cost_usd=0.5), FALLBACK, "", COUNTED, id="a blank summary also costs"),
        pytest.param(None, FALLBACK, "", UNUSED, id="a failed or omitted call"),
    ],
)
def test_with_summary(reply: Reply | None, text: str, call: str, usage: UsageTotals) -> None:
    state = with_summary(TURNS, DROP, 100, reply)
    ready = ready_summary(state.conversation, DROP)
    assert ready is not None
    assert (ready.text, ready.call, state.usage, state.iteration) == (text, call, usage, 6)


def test_a_summary_of_other_messages_is_not_used() -> None:
    state = with_summary(TURNS, DROP, 100, Reply.of("read it"))
    assert ready_summary(state.conversation, ((1, 5),)) is None
    assert ready_summary(TURNS.conversation, DROP) is None
