"""The settings of a run: its own keys before its agent's, limited by a ceiling."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.agents.agents import run_config
from orga.workflows.types.input import LoopConfig, PreHydration
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.recovery import Recovery, StepIteration
from orga.workflows.types.tool_calls.tools import ToolProfile
from tests.support.values.strategies import LAW

AGENT = LoopConfig(
    max_iterations=7,
    max_cost_usd=1.0,
    recovery=Recovery(max_attempts=5, base_delay_ms=100),
    tool_profile=ToolProfile(include=("a*",), max_tools=3),
    pre_hydration=PreHydration(max_references=2),
)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"max_iterations": 9}, {"max_iterations": 9}, id="a limit"),
        pytest.param({"max_cost_usd": None}, {"max_cost_usd": None}, id="a removed limit"),
        pytest.param(
            {"recovery": {"max_attempts": 9}},
            {"recovery": Recovery(max_attempts=9, base_delay_ms=100)},
            id="a key of recovery",
        ),
        pytest.param(
            {"tool_profile": {"include": ["b"]}},
            {"tool_profile": ToolProfile(include=("b",), max_tools=3)},
            id="a key of the profile",
        ),
        pytest.param({"tool_profile": None}, {"tool_profile": None}, id="the removed profile"),
        pytest.param(
            {"pre_hydration": {"timeout_s": 1}},
            {"pre_hydration": PreHydration(max_references=2, timeout_s=1)},
            id="a key of pre-hydration",
        ),
        pytest.param(
            {"step_iteration": {"max_reattempts": 1}},
            {"step_iteration": StepIteration(max_reattempts=1)},
            id="an object that the agent does not set",
        ),
    ],
)
def test_the_keys_of_the_run_have_priority(given: dict[str, Any], changed: dict[str, Any]) -> None:
    assert run_config(AGENT, given, Ceiling()) == AGENT.model_copy(update=changed)


@pytest.mark.parametrize(
    ("ceiling", "changed"),
    [
        pytest.param({"max_iterations": 3}, {"max_iterations": 3}, id="a lower limit"),
        pytest.param({"max_iterations": 30}, {}, id="a higher limit has no effect"),
        pytest.param({"max_model_calls": 2}, {"max_model_calls": 2}, id="without an own limit"),
        pytest.param({"max_tool_calls": 0}, {"max_tool_calls": 0}, id="no tool call at all"),
        pytest.param({"max_cost_usd": 0.5, "timeout_s": 2}, {"max_cost_usd": 0.5, "timeout_s": 2.0}, id="two limits"),
        pytest.param({"tools": ("x",)}, {}, id="tools are no limit"),
    ],
)
def test_a_ceiling_lowers_limits(ceiling: dict[str, Any], changed: dict[str, Any]) -> None:
    assert run_config(AGENT, {}, Ceiling(**ceiling)) == AGENT.model_copy(update=changed)


@LAW
@given(st.builds(Ceiling, max_iterations=st.none() | st.integers(1, 50), max_cost_usd=st.none() | st.floats(0.01, 9)))
def test_no_ceiling_raises_a_limit(ceiling: Ceiling) -> None:
    found = run_config(AGENT, {}, ceiling)
    assert found.max_iterations <= min(7, ceiling.max_iterations or 7)
    assert (found.max_cost_usd or 0) <= min(1.0, ceiling.max_cost_usd or 1.0)


@pytest.mark.parametrize(
    ("given", "ceiling", "message"),
    [
        pytest.param(
            {"recovery": {"strategy": "fallback"}},
            {},
            'config.recovery: strategy "fallback" needs alternatives',
            id="conflicting keys",
        ),
        pytest.param({"max_iterations": 0}, {}, "config.max_iterations: ", id="a bad value"),
        pytest.param({}, {"max_iterations": 0}, "lineage.ceiling.max_iterations: ", id="a ceiling that leaves nothing"),
        pytest.param({}, {"max_cost_usd": 0}, "lineage.ceiling.max_cost_usd: ", id="nothing left to spend"),
    ],
)
def test_invalid_settings_are_refused_with_their_key(
    given: dict[str, Any], ceiling: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        run_config(AGENT, given, Ceiling(**ceiling))
    assert str(caught.value).startswith(message)
