"""Limits: which one ends a run, and how much of each remains."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import with_pause, with_resume
from orga.workflows.decisions.limits import budgets, output_allowance, remaining_s, stop_reason
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.state import AgentState
from tests.support.values.core import T0, a_setup, a_state, at, usage_totals
from tests.support.values.strategies import LAW

CONFIG = LoopConfig(max_iterations=25, max_total_tokens=100_000, timeout_s=300.0, max_cost_usd=1.0)
DENIED_3 = {"rm: no": 3}


def reason_of(state: AgentState, seconds: float = 0.0, config: LoopConfig = CONFIG) -> str | None:
    stop = stop_reason(state, config, at(seconds))
    return None if stop is None else stop.reason


@pytest.mark.parametrize(
    ("fields", "seconds", "expected"),
    [
        pytest.param({}, 0.0, None, id="a fresh run goes on"),
        pytest.param({"iteration": 24}, 0.0, None, id="one iteration is left"),
        pytest.param({"iteration": 25}, 0.0, "max_iterations", id="the last iteration is used up"),
        pytest.param({"usage": usage_totals(99_999)}, 0.0, None, id="one token is left"),
        pytest.param({"usage": usage_totals(100_000)}, 0.0, "max_tokens", id="the last token is used up"),
        pytest.param({"usage": usage_totals(150_000)}, 0.0, "max_tokens", id="the last reply overshot"),
        pytest.param({"usage": usage_totals(0, 0.9999)}, 0.0, None, id="a little money is left"),
        pytest.param({"usage": usage_totals(0, 1.0)}, 0.0, "max_cost", id="the money is spent"),
        pytest.param({"usage": usage_totals(0, None)}, 0.0, None, id="calls without a price cost nothing"),
        pytest.param({}, 299.999, None, id="a moment is left"),
        pytest.param({}, 300.0, "timeout", id="the time is up"),
        pytest.param({"denials": {"rm: no": 2}}, 0.0, None, id="a denial came twice"),
        pytest.param({"denials": DENIED_3}, 0.0, "policy_denial", id="a denial came three times"),
        pytest.param({"denials": {"a: x": 1, "b: y": 3}}, 0.0, "policy_denial", id="one denial of several came again"),
        pytest.param({"aborted": ""}, 0.0, "aborted", id="an abort without a reason is an abort"),
        pytest.param({"aborted": "a", "denials": DENIED_3}, 0.0, "aborted", id="an abort wins over a denial"),
        pytest.param({"denials": DENIED_3, "iteration": 25}, 0.0, "policy_denial", id="a denial wins over iterations"),
        pytest.param(
            {"iteration": 25, "usage": usage_totals(100_000)}, 0.0, "max_iterations", id="iterations win over tokens"
        ),
        pytest.param({"usage": usage_totals(100_000, 1.0)}, 0.0, "max_tokens", id="tokens win over cost"),
        pytest.param({"usage": usage_totals(0, 1.0)}, 300.0, "max_cost", id="cost wins over time"),
    ],
)
def test_the_first_reached_limit_ends_the_run(fields: dict[str, Any], seconds: float, expected: str | None) -> None:
    assert reason_of(a_state(**fields), seconds) == expected


@pytest.mark.parametrize(
    ("fields", "seconds", "detail"),
    [
        pytest.param({"aborted": "wrong repository"}, 0.0, "wrong repository", id="the operator's words"),
        pytest.param({"denials": DENIED_3}, 0.0, "rm: no, 3 iterations in a row", id="the denial"),
        pytest.param({"iteration": 25}, 0.0, "limit of 25 iterations", id="the limit of iterations"),
        pytest.param({"usage": usage_totals(100_001)}, 0.0, "100001 of 100000 tokens", id="used of allowed"),
        pytest.param({"usage": usage_totals(0, 1.25)}, 0.0, "1.2500 of 1.0 USD", id="spent of allowed"),
        pytest.param({}, 300.0, "limit of 300 s", id="the time limit"),
    ],
)
def test_the_detail_names_the_limit(fields: dict[str, Any], seconds: float, detail: str) -> None:
    stop = stop_reason(a_state(**fields), CONFIG, at(seconds))
    assert stop is not None
    assert stop.detail == detail


def test_without_a_cost_limit_no_price_ends_the_run() -> None:
    assert reason_of(a_state(usage=usage_totals(0, 1e9)), config=LoopConfig()) is None


@pytest.mark.parametrize(
    ("used_tokens", "expected"),
    [
        pytest.param(0, 16_384, id="one reply's limit while much is left"),
        pytest.param(100_000 - 16_384, 16_384, id="exactly one reply is left"),
        pytest.param(100_000 - 16_383, 16_383, id="the remaining tokens if they are fewer"),
        pytest.param(99_999, 1, id="the last token"),
        pytest.param(200_000, 1, id="never below one, which providers refuse"),
    ],
)
def test_the_output_allowance_is_bounded_by_the_remaining_tokens(used_tokens: int, expected: int) -> None:
    assert output_allowance(a_state(usage=usage_totals(used_tokens)), CONFIG) == expected


@pytest.mark.parametrize(
    ("pauses", "now", "left"),
    [
        pytest.param((), 100, 200, id="time passes"),
        pytest.param(((50, 80),), 100, 230, id="a pause is left out"),
        pytest.param(((50, 80), (90, 95)), 100, 235, id="pauses add up"),
        pytest.param(((50, None),), 100, 250, id="the clock stops during a pause"),
        pytest.param(((50, None),), 1e6, 250, id="a long pause"),
        pytest.param((), 1e6, 0, id="never below zero"),
    ],
)
def test_the_remaining_time_excludes_pauses(
    pauses: tuple[tuple[float, float | None], ...], now: float, left: float
) -> None:
    state = a_state()
    for start, stop in pauses:
        state = with_pause(state, at(start))
        state = state if stop is None else with_resume(state, at(stop))
    assert remaining_s(state, at(now)) == left


@LAW
@given(st.lists(st.tuples(st.sampled_from("pr."), st.integers(0, 1_000)), max_size=20))
def test_the_clock_never_runs_backwards_and_excludes_pauses(steps: list[tuple[str, int]]) -> None:
    state, now, counted, paused = a_state(), 0, 0, False
    for kind, passed in steps:
        now += passed
        counted += 0 if paused else passed
        if kind != ".":
            state = (with_pause if kind == "p" else with_resume)(state, at(now))
            paused = kind == "p"
        assert state.clock.elapsed_seconds(at(now)) == counted


def test_budgets_show_the_remainder_next_to_each_limit() -> None:
    state = a_state(iteration=3, usage=usage_totals(1_000, 0.25), setup=a_setup(config=CONFIG))
    left = budgets(state, at(12.3456))
    assert left.model_dump() == {
        "iterations": 22,
        "max_iterations": 25,
        "tokens": 99_000,
        "max_total_tokens": 100_000,
        "cost_usd": 0.75,
        "max_cost_usd": 1.0,
        "time_s": 287.654,
        "timeout_s": 300.0,
        "model_calls": None,
        "max_model_calls": None,
        "tool_calls": None,
        "max_tool_calls": None,
    }


def test_budgets_never_fall_below_zero() -> None:
    left = budgets(a_state(iteration=99, usage=usage_totals(10**9, 5.0), setup=a_setup(config=CONFIG)), at(10_000))
    assert (left.iterations, left.tokens, left.cost_usd, left.time_s) == (0, 0, 0.0, 0.0)


def test_before_the_setup_the_limits_of_the_input_are_shown() -> None:
    assert budgets(a_state(), T0).max_iterations == LoopConfig().max_iterations
