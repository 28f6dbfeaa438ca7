"""Budgets of a live run: what raises a limit, and which endings a person can defer."""

from typing import Any, get_args

import pytest

from orga.workflows.decisions.limits import (
    budget_left,
    budget_question,
    budgets,
    can_ask_for_budget,
    parsed_extension,
    with_extension,
)
from orga.workflows.decisions.tool_calls.delegation import delegate_ceiling
from orga.workflows.types.control import Stop, StopReason
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.limits import LIMITS, Limit
from tests.support.values.core import T0, a_setup, a_state

ASKS = LoopConfig(on_exhausted="ask", max_iterations=5, max_total_tokens=1_000, timeout_s=60)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        pytest.param(reason, reason in {"max_iterations", "max_tokens", "max_cost", "timeout"}, id=reason)
        for reason in get_args(StopReason)
    ],
)
def test_only_a_reached_limit_is_asked_about(reason: StopReason, expected: bool) -> None:
    assert can_ask_for_budget(a_state(setup=a_setup(config=ASKS)), Stop(reason, "")) is expected
    assert not can_ask_for_budget(a_state(), Stop(reason, ""))
    assert not can_ask_for_budget(a_state(setup=a_setup(config=ASKS), aborted="enough"), Stop(reason, ""))


def test_raised_limits_win_over_the_config_and_clear_the_ending() -> None:
    state = a_state(setup=a_setup(config=ASKS), stop=Stop("timeout", "limit of 60 s"))
    state = with_extension(state, parsed_extension(state, {"timeout_s": 90, "max_iterations": 6}))
    assert (state.config.timeout_s, state.config.max_iterations, state.config.max_total_tokens) == (90, 6, 1_000)
    assert state.stop is None
    again = with_extension(state, parsed_extension(state, {"max_iterations": 7}))
    assert (again.config.timeout_s, again.config.max_iterations) == (90, 7)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.key)
def test_every_limit_can_be_set_raised_reported_and_passed_on(limit: Limit) -> None:
    state = a_state(setup=a_setup(config=LoopConfig.model_validate({limit.key: 10}, extra="forbid")))
    raised = with_extension(state, parsed_extension(state, {limit.key: 20}))
    left = budgets(raised, T0)
    assert (getattr(left, limit.key), getattr(left, limit.rest)) == (20, 20)
    assert budget_left(raised, T0)[limit.rest] == 20
    assert 0 < getattr(delegate_ceiling(raised, "child", T0), limit.key) <= 20


def test_an_extension_does_not_clear_another_ending() -> None:
    state = a_state(setup=a_setup(config=ASKS), stop=Stop("completed"))
    assert with_extension(state, {"max_iterations": 6}).stop == ("completed", "")


def test_an_extension_before_the_setup_never_lowers_a_limit() -> None:
    state = with_extension(a_state(), parsed_extension(a_state(), {"max_iterations": 30}))
    assert state.config.max_iterations == 30
    prepared = state.model_copy(update={"setup": a_setup(config=LoopConfig(max_iterations=100))})
    assert prepared.config.max_iterations == 100


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"max_iterations": 5}, "5 does not raise the limit of 5", id="the same"),
        pytest.param({"max_iterations": 4}, "4 does not raise the limit of 5", id="lower"),
        pytest.param({"max_iterations": 10**7}, "less than or equal", id="out of bounds"),
        pytest.param({"max_cost_usd": 1}, "no such limit", id="no such limit in this run"),
        pytest.param({"tool_timeout_s": 1}, "tool_timeout_s: unknown key", id="no limit at all"),
        pytest.param({"max_iterations": 9, "max_total_tokens": 1}, "max_total_tokens", id="one of two is lower"),
        pytest.param({}, "name a limit to raise: max_iterations", id="nothing"),
        pytest.param([1], "input", id="no object"),
    ],
)
def test_an_extension_that_raises_nothing_is_refused(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parsed_extension(a_state(setup=a_setup(config=ASKS)), given)


def test_a_limit_reached_again_is_a_new_question() -> None:
    state = a_state(setup=a_setup(config=ASKS), iteration=5)
    first = budget_question(state, Stop("max_iterations", "limit of 5 iterations"), T0)
    later = with_extension(state, {"max_iterations": 6}).model_copy(update={"iteration": 6})
    assert first.question_id != budget_question(later, Stop("max_iterations", "limit of 6 iterations"), T0).question_id
    assert first.text == "max_iterations: limit of 5 iterations. Raise it with extend_budget, or end the run"
