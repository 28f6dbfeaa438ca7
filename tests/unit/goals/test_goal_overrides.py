"""A step added by a person is passed on in full, or it is refused."""

import re
from typing import Any

import pytest
from pydantic_core import to_json

from orga.workflows.decisions.goals import prompts
from orga.workflows.decisions.goals.override import with_override
from orga.workflows.decisions.goals.plans import due_step_calls
from orga.workflows.decisions.goals.pursue import with_guidance_seen, with_round
from orga.workflows.decisions.goals.review import is_for_policy, plan_question, with_plan_to_review
from orga.workflows.types.control import Stop, StopReason
from orga.workflows.types.goals.pursuit import MAX_ARGUMENTS_BYTES, GoalState
from orga.workflows.types.json_text import MAX_DEPTH
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from tests.support.values.core import a_setup, a_spec
from tests.support.values.goals import a_goal, a_plan_step

LONG = f"Line one.\nLine two: {'x ' * 600}and never touch the folder of 1999"
MOST = "x" * (MAX_ARGUMENTS_BYTES - len('""'))


def of_scouts() -> GoalState:
    """Return a goal whose next step can run and which may delegate to `scout`."""
    state = a_goal(a_plan_step("a", "done", 4.0), a_plan_step("b", "open", None, "a"), stage="decide")
    setup = a_setup(a_spec(), a_spec("delegate"), delegates=(DelegateSpec(agent="scout"),))
    return state.with_task(setup=setup)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_text_becomes_the_task_of_an_agent_unchanged() -> None:
    """The step depends on another one, so the model would otherwise write the task."""
    state = with_round(with_override(of_scouts(), {"skill": "scout", "input": LONG}))
    task = {"agent": "scout", "task": LONG}
    assert due_step_calls(state) == (ToolCall(call_id="b", name="delegate", arguments=task),)


def test_the_model_makes_the_arguments_from_the_whole_text() -> None:
    state = with_round(with_override(of_scouts(), {"skill": "read", "input": LONG}))
    assert due_step_calls(state) == (None,)
    plan_question = prompts.input_prompt(state, state.pursuit.due_steps, is_planned=False)
    assert " ".join(LONG.split()) in plan_question
    assert " ".join(LONG.split()) in state.inbox[0].text


@pytest.mark.parametrize("skill", ["read", "scout"])
def test_an_input_that_is_too_long_is_refused_and_never_cut(skill: str) -> None:
    assert with_override(of_scouts(), {"skill": skill, "input": MOST}).pursuit.steps[1].skill == skill
    for given in (f"{MOST}x", "ü" * MAX_ARGUMENTS_BYTES, {"task": MOST}):
        assert len(to_json(given)) > MAX_ARGUMENTS_BYTES
        with pytest.raises(ValueError, match=r"at most 4000 bytes of JSON|an agent takes its task"):
            with_override(of_scouts(), {"skill": skill, "input": given})


def test_consecutive_overrides_are_all_kept() -> None:
    state = of_scouts()
    for at in range(3):
        state = with_override(state, {"skill": "read", "input": {"at": at}})
    assert [(step.id, step.arguments) for step in state.pursuit.open_steps] == [
        ("b", {"at": 0}),
        ("operator-1", {"at": 1}),
        ("operator-2", {"at": 2}),
    ]
    assert len(state.inbox) == 3


def test_the_number_of_waiting_overrides_is_limited() -> None:
    state = of_scouts()
    most = state.goal_config.max_plan_steps
    for at in range(most):
        state = with_override(state, {"skill": "read", "input": {"at": at}})
    assert state.pursuit.longest == most
    with pytest.raises(ValueError, match=f"{most} steps by people wait already"):
        with_override(state, {"skill": "read", "input": {"at": most}})


@pytest.mark.parametrize(
    ("skill", "given", "why"),
    [
        ("scout", {"question": "what happened in 1999?"}, 'an agent takes its task as a text, {"task": "..."}'),
        ("scout", {"task": "look", "path": "a.md"}, "and nothing else"),
        ("scout", {"task": " "}, "an agent takes its task"),
        ("read", {"a": _nested(MAX_DEPTH)}, f"nested more than {MAX_DEPTH} deep"),
    ],
)
def test_an_override_that_cannot_be_executed_is_refused(skill: str, given: object, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        with_override(of_scouts(), {"skill": skill, "input": given})
    assert with_override(of_scouts(), {"skill": "scout", "input": {"task": "look"}}).inbox


def test_an_override_of_a_held_plan_asks_people_again() -> None:
    """Otherwise an approval of the earlier question would cover a step that nobody has seen."""
    for how in ("always", "policy"):
        held = with_plan_to_review(a_goal(a_plan_step("a"), config={"plan_review": how}))
        held = held.with_pursuit(question="Is this plan right? a (read): g", questions=1)
        after = with_override(held, {"skill": "read", "input": {"path": "/prod"}})
        assert after.pursuit.stage == "review"
        assert plan_question(after) != plan_question(held)
        assert is_for_policy(after) is (how == "policy")
    assert (
        "/prod"
        in with_override(
            with_plan_to_review(a_goal(a_plan_step("a"), config={"plan_review": "always"})),
            {"skill": "read", "input": {"path": "/prod"}},
        ).pursuit.question
    )


@pytest.mark.parametrize(("reason", "is_taken"), [("completed", True), ("stuck", True), ("max_iterations", False)])
def test_an_override_is_too_late_only_if_a_limit_ends_the_goal(reason: StopReason, is_taken: bool) -> None:
    ending = of_scouts().with_pursuit(stage="summarise", ending=Stop(reason, ""), errors=3)
    if not is_taken:
        with pytest.raises(ValueError, match=r"the goal is ending .max_iterations.; raise its limit first, or fork it"):
            with_override(ending, {"skill": "read", "input": {}})
        return
    after = with_guidance_seen(with_override(ending, {"skill": "read", "input": {}}))
    assert (after.pursuit.ending, after.pursuit.stage) == (None, "decide")
    assert after.pursuit.errors == (0 if reason == "stuck" else 3)
