"""A delegate may spend a share of what remains. The share is reserved until the delegate ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.tool_calls.delegation import (
    common_tools,
    delegate_ceiling,
    exhausted_limits,
    with_delegate_usage,
    with_reserved_ceiling,
    with_waiting_delegate,
    without_delegate,
)
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult, Termination
from orga.workflows.types.tool_calls.delegation import Child
from tests.support.values.core import a_setup, a_state, at
from tests.support.values.strategies import LAW

LIMITS: dict[str, Any] = {
    "max_iterations": 10,
    "max_total_tokens": 1_000,
    "timeout_s": 100,
    "max_model_calls": 13,
    "max_tool_calls": 14,
    "max_cost_usd": 0.9,
}


def a_parent(*children: str, spent: UsageTotals | None = None, iteration: int = 1, **config: Any) -> AgentState:
    """Return a run with delegates that have not started."""
    setup = a_setup(config=LoopConfig(**LIMITS | config))
    state = a_state(setup=setup, usage=spent or UsageTotals(), iteration=iteration)
    for name in children:
        state = with_waiting_delegate(state, Child(workflow_id=name, agent="helper", task="help"))
    return state


def a_result(
    *, tokens: int = 0, calls: int = 0, tools: int = 0, cost: float | None = None, below: int = 0
) -> AgentResult:
    usage = UsageTotals(input_tokens=tokens, total_tokens=tokens, model_calls=calls, cost_usd=cost)
    return AgentResult(
        output="",
        data=None,
        iterations=1,
        termination=Termination(reason="completed"),
        duration_s=1,
        usage=usage,
        tool_calls=ToolCallCounts(proposed=tools, run=tools, delegated=below),
        conversation_digest="",
    )


def ceiling(state: AgentState, child: str, seconds: float = 0) -> dict[str, Any]:
    return delegate_ceiling(state, child, at(seconds)).model_dump(exclude_none=True)


def test_one_delegate_gets_the_remaining_budget_minus_a_reserve_for_its_parent() -> None:
    spent = UsageTotals(total_tokens=100, model_calls=2, cost_usd=0.3)
    assert ceiling(a_parent("a", spent=spent), "a", 20) == {
        "max_iterations": 9,
        "max_total_tokens": 450,
        "max_cost_usd": pytest.approx(0.54),
        "timeout_s": 78.0,
        "max_model_calls": 10,
        "max_tool_calls": 13,
        "max_delegation_depth": 3,
    }


def test_delegates_of_one_reply_get_equal_shares_and_all_of_the_time() -> None:
    state = a_parent("a", "b", "c")
    shares = [ceiling(state, name) for name in ("a", "b", "c")]
    assert shares[0] == shares[1] == shares[2]
    assert [shares[0][key] for key in ("max_total_tokens", "max_model_calls", "max_tool_calls")] == [166, 4, 3]
    assert shares[0]["max_cost_usd"] == pytest.approx(0.27)
    assert (shares[0]["max_iterations"], shares[0]["timeout_s"]) == (9, 98.0)


def test_delegates_have_no_limit_that_their_parent_does_not_have() -> None:
    state = a_parent("a", max_cost_usd=None, max_model_calls=None, max_tool_calls=None)
    assert set(ceiling(state, "a")) == {"max_iterations", "max_total_tokens", "timeout_s", "max_delegation_depth"}


def test_the_unused_share_of_a_delegate_is_available_to_the_next_one() -> None:
    state = a_parent("a", "b", "c")
    for name in ("a", "b"):
        state = with_reserved_ceiling(state, name, delegate_ceiling(state, name, at(0)))
    state = with_delegate_usage(state, "a", a_result(tokens=33, calls=1))
    assert ceiling(state, "c")["max_total_tokens"] == 967 - 967 // 2 - 167
    assert ceiling(state, "c")["max_model_calls"] == 13 - 1 - 1 - 4


@pytest.mark.parametrize(
    ("left_s", "expected"),
    [
        pytest.param(100, 98.0, id="two seconds before the parent"),
        pytest.param(20, 18.0, id="still two seconds"),
        pytest.param(5, 4.5, id="a tenth of the remaining time if that is less"),
    ],
)
def test_the_time_of_a_delegate_ends_before_that_of_its_parent(left_s: float, expected: float) -> None:
    assert ceiling(a_parent("a"), "a", 100 - left_s)["timeout_s"] == expected


@pytest.mark.parametrize(
    ("state", "seconds", "lacks"),
    [
        pytest.param(a_parent("a"), 0, [], id="enough of all"),
        pytest.param(a_parent("a", iteration=10), 0, ["iterations"], id="no iteration to read the answer"),
        pytest.param(a_parent("a", spent=UsageTotals(total_tokens=1_000)), 0, ["tokens"], id="tokens"),
        pytest.param(a_parent("a", spent=UsageTotals(total_tokens=1_200)), 0, ["tokens"], id="tokens, overspent"),
        pytest.param(a_parent(*"abc", spent=UsageTotals(total_tokens=998)), 0, ["tokens"], id="not one token each"),
        pytest.param(a_parent("a", spent=UsageTotals(cost_usd=0.9)), 0, ["money"], id="money"),
        pytest.param(
            a_parent("a", spent=UsageTotals(model_calls=12)), 0, ["model calls"], id="only the parent's own call"
        ),
        pytest.param(a_parent("a"), 100, ["time"], id="time"),
        pytest.param(a_parent("a", max_tool_calls=1), 0, [], id="no tool calls, but it can still answer"),
        pytest.param(a_parent("a", iteration=10), 100, ["iterations", "time"], id="more than one"),
    ],
)
def test_exhausted_limits_are_listed(state: AgentState, seconds: float, lacks: list[str]) -> None:
    assert exhausted_limits(delegate_ceiling(state, "a", at(seconds))) == lacks


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param([None, None], None, id="no bound"),
        pytest.param([None, ("read", "write"), None], ("read", "write"), id="one bound"),
        pytest.param([("read", "write"), ("write", "send")], ("write",), id="the tools in both"),
        pytest.param([("read",), ()], (), id="an empty bound"),
    ],
)
def test_tools_are_those_that_all_bounds_allow(
    bounds: list[tuple[str, ...] | None], expected: tuple[str, ...] | None
) -> None:
    assert common_tools(*bounds) == expected


tool_sets = st.none() | st.lists(st.sampled_from("abcdef"), unique=True).map(tuple)


@LAW
@given(st.lists(tool_sets, max_size=4))
def test_no_bound_is_ever_widened(bounds: list[tuple[str, ...] | None]) -> None:
    found = common_tools(*bounds)
    for bound in bounds:
        assert bound is None or (found is not None and set(found) <= set(bound))


@LAW
@given(
    delegates=st.integers(1, 6),
    limits=st.tuples(st.integers(1, 5_000), st.integers(1, 60), st.integers(1, 60)),
    moves=st.lists(st.tuples(st.sampled_from(["start", "end", "lose"]), st.floats(0, 1)), max_size=20),
)
def test_delegates_within_their_ceilings_never_overspend_together(
    delegates: int, limits: tuple[int, int, int], moves: list[tuple[str, float]]
) -> None:
    """This holds for any order of starts and ends, and any used part of each share."""
    tokens, calls, tools = limits
    waiting = [f"d{number}" for number in range(delegates)]
    state = a_parent(*waiting, max_total_tokens=tokens, max_model_calls=calls, max_tool_calls=tools, max_cost_usd=1.0)
    running: dict[str, Ceiling] = {}
    for move, part in moves:
        if move == "start" and waiting:
            name = waiting.pop(0)
            share = delegate_ceiling(state, name, at(0))
            if exhausted_limits(share):
                state = without_delegate(state, name)
            else:
                running[name] = share
                state = with_reserved_ceiling(state, name, share)
        elif move != "start" and running:
            name, share = running.popitem()
            state = with_delegate_usage(state, name, _used(share, part) if move == "end" else None)
        held = [*running.values()]
        assert state.usage.total_tokens + sum(each.max_total_tokens or 0 for each in held) <= tokens
        assert state.usage.model_calls + sum(each.max_model_calls or 0 for each in held) <= max(calls - 1, 0)
        assert state.tool_calls.delegated + sum(each.max_tool_calls or 0 for each in held) <= tools
        assert (state.usage.cost_usd or 0.0) + sum(each.max_cost_usd or 0.0 for each in held) <= 1.0 + 1e-9
        assert {child.workflow_id for child in state.children} == {*waiting, *running}


def _used(share: Ceiling, part: float) -> AgentResult:
    return a_result(
        tokens=int((share.max_total_tokens or 0) * part),
        calls=int((share.max_model_calls or 0) * part),
        tools=int((share.max_tool_calls or 0) * part),
        cost=(share.max_cost_usd or 0.0) * part,
    )
