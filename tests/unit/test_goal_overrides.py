"""A step by a person's word: its words reach whoever does it whole, or it is refused."""

import pytest
from pydantic_core import to_json

from orga.workflows.decisions.goals import prompts
from orga.workflows.decisions.goals.override import with_override
from orga.workflows.decisions.goals.plans import calls_of
from orga.workflows.decisions.goals.pursue import with_round
from orga.workflows.types.delegation import DelegateSpec
from orga.workflows.types.goals.pursuit import MAX_ARGUMENTS_BYTES, GoalState
from orga.workflows.types.messages import ToolCall
from tests.support.values.core import a_setup, a_spec
from tests.support.values.goals import a_goal, a_plan_step

LONG = f"Line one.\nLine two: {'x ' * 600}and never touch the folder of 1999"
MOST = "x" * (MAX_ARGUMENTS_BYTES - len('""'))


def of_scouts() -> GoalState:
    """Return a goal whose next step waits for none, and which may delegate to `scout`."""
    state = a_goal(a_plan_step("a", "done", 4.0), a_plan_step("b", "open", None, "a"), stage="decide")
    setup = a_setup(a_spec(), a_spec("delegate"), delegates=(DelegateSpec(agent="scout"),))
    return state.with_task(setup=setup)


def test_a_text_is_the_task_of_an_agent_as_it_stands() -> None:
    """The step depends on another, so of its own words the model would make the task."""
    state = with_round(with_override(of_scouts(), {"skill": "scout", "input": LONG}))
    task = {"agent": "scout", "task": LONG}
    assert calls_of(state) == (ToolCall(call_id="b", name="delegate", arguments=task),)


def test_of_a_text_for_a_tool_the_model_makes_the_arguments_and_sees_all_of_it() -> None:
    state = with_round(with_override(of_scouts(), {"skill": "read", "input": LONG}))
    assert calls_of(state) == (None,)
    asked = prompts.input_prompt(state, state.pursuit.due_steps, is_planned=False)
    assert " ".join(LONG.split()) in asked
    assert " ".join(LONG.split()) in state.inbox[0].text


@pytest.mark.parametrize("skill", ["read", "scout"])
def test_what_is_too_long_is_refused_and_never_cut(skill: str) -> None:
    assert with_override(of_scouts(), {"skill": skill, "input": MOST}).pursuit.steps[1].skill == skill
    for given in (f"{MOST}x", "ü" * MAX_ARGUMENTS_BYTES, {"task": MOST}):
        assert len(to_json(given)) > MAX_ARGUMENTS_BYTES
        with pytest.raises(ValueError, match="at most 4000 bytes of JSON"):
            with_override(of_scouts(), {"skill": skill, "input": given})
