"""The token estimate is calibrated by the provider's counts and includes instructions and tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.conversation import (
    MAX_CALIBRATION,
    MIN_CALIBRATION,
    estimated_message_tokens,
    estimated_sent_tokens,
    frame_tokens,
    halved_budget,
    message_budget,
    with_calibration,
    with_frame_size,
    with_message,
)
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.state import AgentState
from tests.support.values.core import a_setup, a_spec, a_state, user
from tests.support.values.strategies import LAW

SENT = Conversation(tokens=900, frame=100)


@pytest.mark.parametrize(
    ("calibration", "estimate", "counted", "expected"),
    [
        pytest.param(1.0, 1_000, 1_000, 1.0, id="a good estimate changes nothing"),
        pytest.param(1.0, 1_000, 1_400, 1.2, id="half of the way at a time"),
        pytest.param(1.2, 1_000, 1_400, 1.3, id="half of the remaining difference"),
        pytest.param(1.0, 1_000, 100_000, 2.0, id="an extreme count is limited to the maximum"),
        pytest.param(1.0, 1_000, 1, 0.75, id="an extreme count is limited to the minimum"),
        pytest.param(1.5, 1_000, 0, 1.5, id="no count changes nothing"),
        pytest.param(1.5, 499, 5_000, 1.5, id="a short conversation changes nothing"),
        pytest.param(1.0, 500, 1_000, 1.5, id="500 tokens are enough"),
    ],
)
def test_the_calibration_follows_the_counted_tokens(
    calibration: float, estimate: int, counted: int, expected: float
) -> None:
    sent = Conversation(tokens=estimate - 100, frame=100)
    state = with_calibration(a_state(calibration=calibration), sent, counted)
    assert state.calibration == pytest.approx(expected)


@LAW
@given(st.lists(st.integers(0, 10**7), max_size=30))
def test_the_calibration_stays_within_its_bounds(counts: list[int]) -> None:
    state = a_state()
    for counted in counts:
        state = with_calibration(state, SENT, counted)
    assert MIN_CALIBRATION <= state.calibration <= MAX_CALIBRATION


@LAW
@given(st.floats(MIN_CALIBRATION, MAX_CALIBRATION))
def test_a_steady_ratio_is_learned_after_ten_replies(ratio: float) -> None:
    state = a_state()
    for _ in range(10):
        state = with_calibration(state, SENT, round(1_000 * ratio))
    assert state.calibration == pytest.approx(ratio, abs=0.01)


def test_instructions_tools_and_the_answer_schema_are_counted() -> None:
    bare = a_setup(instructions="").model_copy(update={"tools": ()})
    with_text = bare.model_copy(update={"instructions": "i" * 330})
    with_tool = with_text.model_copy(update={"tools": (a_spec("read", description="d" * 660),)})
    with_schema = with_tool.model_copy(update={"output_schema": {"description": "s" * 990}})
    sizes = [frame_tokens(setup) for setup in (bare, with_text, with_tool, with_schema)]
    assert sizes[:2] == [0, 107]
    assert 200 <= sizes[2] - sizes[1] <= 230
    assert 300 <= sizes[3] - sizes[2] <= 330


def test_the_frame_is_measured_once() -> None:
    state = with_frame_size(a_state(setup=a_setup(instructions="i" * 330, tools=())))
    other = state.model_copy(update={"setup": a_setup(instructions="i" * 33_000)})
    assert state.conversation.frame == frame_tokens(a_setup(instructions="i" * 330, tools=()))
    assert with_frame_size(other) is other


def a_run(budget: int, calibration: float, frame: int) -> AgentState:
    setup = a_setup(config=LoopConfig(context_token_budget=budget))
    return a_state(setup=setup, calibration=calibration, conversation=Conversation(frame=frame))


@pytest.mark.parametrize(
    ("budget", "calibration", "frame", "expected"),
    [
        pytest.param(1_000, 1.0, 0, 1_000, id="all of it"),
        pytest.param(1_000, 1.0, 300, 700, id="minus the fixed part of every call"),
        pytest.param(1_000, 2.0, 300, 200, id="a provider that counts twice as much leaves half"),
        pytest.param(1_000, 0.5, 300, 1_700, id="one that counts half leaves twice as much"),
        pytest.param(1_000, 1.0, 5_000, 0, id="tools larger than the budget leave nothing"),
    ],
)
def test_the_budget_of_the_messages_excludes_the_fixed_part(
    budget: int, calibration: float, frame: int, expected: int
) -> None:
    assert message_budget(a_run(budget, calibration, frame)) == expected


@pytest.mark.parametrize(
    ("tokens", "frame", "expected"),
    [
        pytest.param(1_000, 0, 500, id="half"),
        pytest.param(900, 100, 400, id="half of the whole with the fixed part"),
        pytest.param(100, 900, 0, id="a fixed part over half leaves nothing"),
    ],
)
def test_the_budget_is_halved_after_an_overflow(tokens: int, frame: int, expected: int) -> None:
    assert halved_budget(Conversation(tokens=tokens, frame=frame)) == expected


def test_the_sent_tokens_are_the_fixed_part_and_all_messages() -> None:
    conversation = with_message(with_message(Conversation(frame=50), user("a")), user("b"))
    assert estimated_sent_tokens(conversation) == 50 + estimated_message_tokens(conversation.messages)
