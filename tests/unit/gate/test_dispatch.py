"""Allowed calls that are started: terminate alone, no stopped call, and no more than the budget allows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.limits import stop_reason
from orga.workflows.decisions.tool_calls.dispatch import exceeds_call_budget, unstarted_outcomes, with_over_budget
from orga.workflows.decisions.tool_calls.repeated_calls import with_failed_call
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.models.usage import ToolCallCounts
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.recovery import Recovery
from tests.support.values.core import T0, a_call, a_setup, a_spec, a_state
from tests.support.values.strategies import LAW


def a_run(max_tool_calls: int | None = None, **fields: Any) -> AgentState:
    setup = a_setup(a_spec("read"), a_spec("save"), config=LoopConfig(max_tool_calls=max_tool_calls))
    return a_state(setup=setup, **fields)


def test_without_limits_all_calls_are_started() -> None:
    assert unstarted_outcomes(a_run(), {n: a_call(f"t{n}") for n in range(9)}) == {}


def test_no_other_call_is_started_with_terminate() -> None:
    down = unstarted_outcomes(a_run(), {0: a_call("read"), 1: a_call("terminate"), 2: a_call("save")})
    assert {index: outcome.text for index, outcome in down.items()} == {
        0: "[Not run] the reply ends the run",
        2: "[Not run] the reply ends the run",
    }


@LAW
@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_never_more_calls_are_started_than_the_budget_allows(limit: int, run: int, delegated: int, wanted: int) -> None:
    state = a_run(limit, tool_calls=ToolCallCounts(proposed=run, run=run, delegated=delegated))
    calls = [a_call(n=n) for n in range(wanted)]
    down = unstarted_outcomes(state, dict(enumerate(calls)))
    left = max(limit - run - delegated, 0)
    assert sorted(down) == list(range(min(left, wanted), wanted))
    assert exceeds_call_budget(state, calls) == bool(down)


def test_a_stopped_call_does_not_use_the_budget() -> None:
    state = a_run(1)
    for _ in range(2):
        state = with_failed_call(state, a_call(path="a"), "gone", T0)
    down = unstarted_outcomes(state, {0: a_call(path="a"), 1: a_call(path="b")})
    assert list(down) == [0]
    assert down[0].text.startswith("[Step limit] read")
    assert down[0].status == "not_run"


def test_a_tool_without_remaining_recoveries_is_not_started() -> None:
    spec = a_spec("save", recovery=Recovery(strategy="llm_recovery", max_recovery_attempts=1))
    state = a_state(setup=a_setup(spec), failures={"save": 2})
    assert list(unstarted_outcomes(state, {0: a_call("save"), 1: a_call("read")})) == [0]


@pytest.mark.parametrize(
    ("wanted_more", "expected"),
    [
        pytest.param([True], None, id="once, so the model may still answer"),
        pytest.param([True, False], None, id="once, then within the budget"),
        pytest.param([True, False, True], None, id="twice with a break"),
        pytest.param([True, True], "max_iterations", id="twice in a row ends the run"),
    ],
)
def test_exceeding_the_budget_twice_in_a_row_ends_the_run(wanted_more: list[bool], expected: str | None) -> None:
    state = a_run(3)
    for is_over in wanted_more:
        state = with_over_budget(state, is_over)
    stop = stop_reason(state, state.config, T0)
    assert (stop and stop.reason) == expected
