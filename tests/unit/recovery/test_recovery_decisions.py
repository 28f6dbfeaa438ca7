"""Recovery as pure functions: which settings apply, what is kept, and for how long."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.tool_calls.recovery import (
    MAX_KEPT_BYTES,
    MAX_LETTER_BYTES,
    cached_good_result,
    max_attempts,
    tries_left,
    with_dead_letter,
    with_letter_answered,
    with_model_retry_failure,
    with_requeued_letter,
    with_succeeded_call,
    without_letter,
)
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.recovery import DeadLetter, GoodResult, Outcome, Recovery
from orga.workflows.types.tool_calls.tools import Effect, ToolSpec
from tests.support.values.core import T0, a_call, a_setup, a_spec, a_state, at

CACHED = Recovery(strategy="cached_result", max_staleness_s=60)
BY_MODEL = Recovery(strategy="llm_recovery", max_recovery_attempts=2)


def a_run(spec: ToolSpec, **fields: Any) -> AgentState:
    return a_state(setup=a_setup(spec), **fields)


@pytest.mark.parametrize(
    ("effect", "of_tool", "attempts_of_tool", "expected"),
    [
        pytest.param("read_only", None, None, 3, id="the run's setting"),
        pytest.param("read_only", Recovery(max_attempts=7), None, 7, id="the tool's recovery has priority"),
        pytest.param("read_only", Recovery(max_attempts=7), 4, 4, id="the tool's option has the highest priority"),
        pytest.param("irreversible", Recovery(max_attempts=7), None, 1, id="an irreversible tool has one attempt"),
    ],
)
def test_max_attempts(effect: Effect, of_tool: Recovery | None, attempts_of_tool: int | None, expected: int) -> None:
    spec = a_spec(recovery=of_tool, max_attempts=attempts_of_tool).model_copy(update={"effect": effect})
    assert max_attempts(spec, LoopConfig(recovery=Recovery(max_attempts=3))) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0, GoodResult(at=T0, text="sunny"), id="immediately"),
        pytest.param(60, GoodResult(at=T0, text="sunny"), id="at the maximum age"),
        pytest.param(60.1, None, id="too old"),
    ],
)
def test_a_result_is_reusable_for_a_limited_time(seconds: float, expected: GoodResult | None) -> None:
    spec = a_spec(recovery=CACHED)
    state = with_succeeded_call(a_run(spec), spec, a_call(city="Bern"), "sunny", T0)
    assert cached_good_result(state, a_call(call_id="other", city="Bern"), CACHED, at(seconds)) == expected
    assert cached_good_result(state, a_call(city="Basel"), CACHED, at(seconds)) is None


def test_results_are_kept_only_if_they_may_be_needed() -> None:
    spec = a_spec()
    assert with_succeeded_call(a_run(spec), spec, a_call(), "sunny", T0).results == {}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, MAX_KEPT_BYTES + 10)), max_size=12))
def test_the_newest_results_that_fit_are_kept(stored: list[tuple[int, int]]) -> None:
    spec = a_spec(recovery=CACHED)
    state = a_run(spec)
    for number, size in stored:
        state = with_succeeded_call(state, spec, a_call(n=number), "x" * size, T0)
    assert sum(len(kept.text) for kept in state.results.values()) <= MAX_KEPT_BYTES
    if stored and stored[-1][1] <= MAX_KEPT_BYTES:
        kept = cached_good_result(state, a_call(n=stored[-1][0]), CACHED, T0)
        assert kept is not None
        assert len(kept.text) == stored[-1][1]


def test_remaining_attempts_are_counted_down_and_reset() -> None:
    spec = a_spec("save", recovery=BY_MODEL)
    state = a_run(spec)
    left: list[int | None] = [tries_left(state, spec)]
    for _ in range(4):
        state = with_model_retry_failure(state, "save")
        left.append(tries_left(state, spec))
    assert left == [None, 2, 1, 0, 0]
    assert tries_left(with_succeeded_call(state, spec, a_call("save"), "ok", T0), spec) is None


def a_letter(letter_id: str = "3.0", **arguments: Any) -> DeadLetter:
    return DeadLetter(letter_id=letter_id, call=a_call("save", **arguments), key="k", error="down", at=T0)


def test_a_letter_that_fails_again_is_kept_once() -> None:
    state = with_dead_letter(with_dead_letter(a_state(), a_letter()), a_letter())
    assert [letter.letter_id for letter in state.dead_letters] == ["3.0"]


def test_no_letter_is_dropped_for_another() -> None:
    state = with_dead_letter(a_state(), a_letter("1.0", text="x" * (MAX_LETTER_BYTES - 1_000)))
    full = with_dead_letter(state, a_letter("2.0", text="x" * 2_000))
    assert [letter.letter_id for letter in full.dead_letters] == ["1.0"]


def test_a_requeued_letter_waits_until_it_is_sent() -> None:
    state = with_dead_letter(with_dead_letter(a_state(), a_letter("1.0")), a_letter("2.0"))
    state = with_requeued_letter(state, "2.0")
    assert [letter.letter_id for letter in state.waiting_letters] == ["2.0"]
    letter = a_letter("2.0")
    sent = with_letter_answered(
        without_letter(state, "2.0"), letter, Outcome(call=letter.call, status="ok", text="saved")
    )
    assert [letter.letter_id for letter in sent.dead_letters] == ["1.0"]
    assert undelimited_text(sent.conversation.messages[-1].text).endswith("sent again by an operator:\nsaved")
    assert sent.taint == (letter.call.name,)


def test_a_missing_letter_cannot_be_requeued() -> None:
    with pytest.raises(ValueError, match=r"no dead letter '9\.9' in this run; there are: 3\.0"):
        with_requeued_letter(with_dead_letter(a_state(), a_letter()), "9.9")


def test_a_fallback_without_alternatives_is_refused() -> None:
    with pytest.raises(ValueError, match="needs alternatives"):
        Recovery(strategy="fallback")
