"""Plans: valid forms, all problems of an invalid one, the steps that are ready, and their calls."""

from typing import Any

import pytest

from orga.workflows.decisions.goals.plans import available_skills, calls_mismatch, parsed_plan, ready_steps, step_call
from orga.workflows.decisions.goals.replies import UnusableReply
from orga.workflows.types.goals.pursuit import PlanStep
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from tests.support.values.core import a_call, a_setup, a_spec

SKILLS = {"read": "reads", "scout": "an agent"}


def step_fields(step_id: str = "a", *needs: str, **fields: Any) -> dict[str, Any]:
    return {"id": step_id, "goal": "g", "skill": "read", "depends_on": list(needs), **fields}


def a_plan_step(step_id: str, *needs: str, **fields: Any) -> PlanStep:
    given: dict[str, Any] = {"id": step_id, "goal": "g", "skill": "read", "depends_on": needs}
    return PlanStep(**given | fields)


def test_a_plan_is_a_graph_and_other_names_of_its_keys_are_accepted() -> None:
    listed = [step_fields("a", arguments={"path": "x"}), {"tool": "read", "description": "then", "depends_on": ["a"]}]
    first, second = parsed_plan(listed, SKILLS, 8)
    assert (first.arguments, second.id, second.goal, second.depends_on) == ({"path": "x"}, "s2", "then", ("a",))


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        pytest.param([], "at least one step", id="an empty one"),
        pytest.param("read it", "at least one step", id="words"),
        pytest.param(["read"], "step 1: give an object", id="a step of words"),
        pytest.param([step_fields(str(n)) for n in range(9)], "9 of them, at most 8", id="too many"),
        pytest.param([step_fields(skill="fly")], "skill 'fly' is none of read, scout", id="an unknown skill"),
        pytest.param([step_fields(goal="")], "goal: what it is for is missing", id="no goal"),
        pytest.param([step_fields(goal="g" * 501)], "goal: at most 500 characters", id="a goal too long"),
        pytest.param([step_fields("a\n- b: done")], "id: one line", id="an id that looks like several steps"),
        pytest.param([step_fields("a"), step_fields("a")], "a: the id is used twice", id="an id twice"),
        pytest.param([step_fields("a", "z")], "depends on 'z', which is no step", id="an unknown dependency"),
        pytest.param([step_fields("a", "b"), step_fields("b", "a")], "round in a circle", id="a circle"),
        pytest.param([step_fields("a", "a")], "round in a circle", id="a step that waits for itself"),
        pytest.param([step_fields(arguments="x")], "arguments: an object", id="arguments as words"),
        pytest.param([step_fields(arguments={"x": "y" * 4_000})], "at most 4000 bytes", id="arguments too large"),
        pytest.param([step_fields(depends_on=[{"id": "a"}])], "depends_on: a list of ids", id="ids that are objects"),
        pytest.param([step_fields(depends_on=[True])], "depends_on: a list of ids", id="an id that is true"),
        pytest.param([step_fields(depends_on="z")], "depends on 'z', which is no step", id="an unknown id as a text"),
        pytest.param([step_fields(arguments='["x"]')], "arguments: an object", id="arguments as a list in a text"),
        pytest.param([step_fields("b", "old")], "depends on 'old', which failed", id="a dependency that failed"),
        pytest.param([step_fields("old")], "old: the id is used twice", id="the id of a step that is over"),
    ],
)
def test_each_problem_of_a_plan_is_reported(listed: object, why: str) -> None:
    with pytest.raises(UnusableReply, match=why):
        parsed_plan(listed, SKILLS, 8, [a_plan_step("old", state="failed")])


@pytest.mark.parametrize(
    ("ids", "given", "needs"),
    [
        pytest.param((1, 2, 3), [1, 2], ("1", "2"), id="numbers"),
        pytest.param(("1", "2", "3"), [1], ("1",), id="numbers for ids that are strings"),
        pytest.param((1, 2, 3), ["2"], ("2",), id="strings for ids that are numbers"),
        pytest.param((1, 2, 3), 2, ("2",), id="one number"),
        pytest.param(("a", "b", "c"), "a", ("a",), id="one text"),
        pytest.param(("a", "b", "c"), "a, b", ("a", "b"), id="two ids in one text"),
        pytest.param(("a", "b", "c"), ["a,b"], ("a", "b"), id="two ids in one text of a list"),
        pytest.param(("a, b", "b", "c"), "a, b", ("a, b",), id="an id with a comma"),
        pytest.param((None, None, None), [1, 2], ("s1", "s2"), id="numbers of steps without ids"),
        pytest.param(("a", "b", "c"), "", (), id="an empty text"),
        pytest.param(("a", "b", "c"), None, (), id="null"),
    ],
)
def test_dependencies_are_read_in_all_forms(ids: tuple[Any, ...], given: object, needs: tuple[str, ...]) -> None:
    listed = [step_fields(step_id) if step_id is not None else {"goal": "g", "skill": "read"} for step_id in ids]
    assert parsed_plan([*listed[:-1], listed[-1] | {"depends_on": given}], SKILLS, 8)[-1].depends_on == needs


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        pytest.param({"arguments": '{"path": "x"}'}, {"path": "x"}, id="JSON text"),
        pytest.param({"arguments": '```json\n{"path": "x"}\n```'}, {"path": "x"}, id="JSON text in a fence"),
        pytest.param({"args": {"path": "x"}}, {"path": "x"}, id="another key"),
        pytest.param({"arguments": None, "input": {"path": "x"}}, {"path": "x"}, id="another key next to null"),
        pytest.param({"parameters": '{"path": "x"}'}, {"path": "x"}, id="JSON text under another key"),
        pytest.param({"input": "what a brings"}, None, id="text under another key"),
        pytest.param({"arguments": "null"}, None, id="null as a text"),
        pytest.param({"arguments": ""}, None, id="an empty text"),
        pytest.param({"arguments": {}}, {}, id="an empty object"),
    ],
)
def test_arguments_are_read_in_all_forms(given: dict[str, Any], arguments: dict[str, Any] | None) -> None:
    assert parsed_plan([step_fields(**given)], SKILLS, 8)[0].arguments == arguments


def test_a_text_becomes_the_task_of_an_agent() -> None:
    (step,) = parsed_plan([step_fields(skill="scout", arguments="look at x")], SKILLS, 8, agents=frozenset({"scout"}))
    assert step.arguments == {"task": "look at x"}


@pytest.mark.parametrize("given", [{"question": "?"}, {"task": "look", "path": "a"}, {"task": ""}, {"task": 5}])
def test_an_agent_accepts_only_a_task(given: dict[str, Any]) -> None:
    with pytest.raises(UnusableReply, match="a: arguments: an agent takes its task as a text"):
        parsed_plan([step_fields(skill="scout", arguments=given)], SKILLS, 8, agents=frozenset({"scout"}))
    for fine, task in (({"task": "look"}, {"task": "look"}), ({}, None), (None, None)):
        (step,) = parsed_plan([step_fields(skill="scout", arguments=fine)], SKILLS, 8, agents=frozenset({"scout"}))
        assert step.arguments == task


def test_problems_are_reported_together_and_bounded() -> None:
    with pytest.raises(UnusableReply, match="and 6 more") as reported:
        parsed_plan([step_fields(str(n), skill="fly", goal="") for n in range(8)], SKILLS, 8)
    assert str(reported.value).count("fly") == 5


def test_steps_are_ready_when_all_their_dependencies_are_done() -> None:
    steps = [
        a_plan_step("a", state="done"),
        a_plan_step("f", state="failed"),
        a_plan_step("b", "a"),
        a_plan_step("c", "a", "b"),
        a_plan_step("d", "f"),
        a_plan_step("e"),
    ]
    assert [step.id for step in ready_steps(steps, 8)] == ["b", "e"]
    assert [step.id for step in ready_steps(steps, 1)] == ["b"]


def test_skills_are_tools_and_agents_without_the_tools_of_the_loop() -> None:
    setup = a_setup(
        *(a_spec(name) for name in ("read", "delegate", "terminate", "decide", "saga")),
        delegates=(DelegateSpec(agent="scout", description="looks"), DelegateSpec(agent="read")),
    )
    assert available_skills(setup) == {"read": "", "scout": "looks"}
    assert available_skills(a_setup(delegates=(DelegateSpec(agent="scout"),))) == {"read": ""}


def test_a_step_is_a_call_or_a_delegation() -> None:
    tools = (a_spec("read"), a_spec("delegate"))
    made = step_call(a_plan_step("a", arguments={"path": "x"}), tools)
    assert made is not None
    assert (made.name, made.arguments) == ("read", {"path": "x"})
    delegated = step_call(a_plan_step("a", skill="scout"), tools)
    assert delegated is not None
    assert (delegated.name, delegated.arguments) == ("delegate", {"agent": "scout", "task": "g"})
    assert step_call(a_plan_step("a"), tools) is None
    assert step_call(a_plan_step("a", "b", skill="scout"), tools) is None


def test_only_the_calls_of_the_due_steps_match() -> None:
    setup = a_setup(a_spec("read"), a_spec("delegate"))
    steps = [a_plan_step("a"), a_plan_step("b", skill="scout")]
    fitting = [a_call("read"), a_call("delegate", agent="scout", task="t")]
    assert calls_mismatch(fitting, steps, (None, None), setup) == ""
    for wrong in (
        fitting[:1],
        [*fitting, a_call("read")],
        fitting[::-1],
        [a_call("read"), a_call("delegate", agent="x")],
    ):
        assert calls_mismatch(wrong, steps, (None, None), setup)


@pytest.mark.parametrize(
    ("planned", "made"),
    [
        pytest.param({"path": "a"}, {"path": "b"}, id="another value"),
        pytest.param({"path": "a"}, {}, id="no value"),
        pytest.param({"path": "a"}, {"path": "a", "force": True}, id="one more"),
        pytest.param({}, {"path": "a"}, id="a call without any"),
        pytest.param({"n": 1}, {"n": True}, id="true in place of 1"),
        pytest.param({"n": 1}, {"n": "1"}, id="a text in place of a number"),
        pytest.param({"at": {"x": [1, 2]}}, {"at": {"x": [2, 1]}}, id="another order, deep inside"),
    ],
)
def test_planned_arguments_must_be_kept(planned: dict[str, Any], made: dict[str, Any]) -> None:
    setup, steps = a_setup(a_spec("read")), [a_plan_step("a"), a_plan_step("b")]
    plan = (a_call("read", **planned), None)
    assert calls_mismatch([a_call("read", **planned), a_call("read", **made)], steps, plan, setup) == ""
    assert "the plan has the arguments" in calls_mismatch([a_call("read", **made), a_call("read")], steps, plan, setup)


def test_a_planned_call_with_invalid_arguments_does_not_match() -> None:
    broken = a_call("read").with_differences(malformed="(too large)")
    assert calls_mismatch([broken], [a_plan_step("a")], [a_call("read")], a_setup(a_spec("read")))


def test_the_mismatch_lists_the_calls_that_the_model_has_to_make() -> None:
    setup = a_setup(a_spec("read"), a_spec("write"))
    steps = [a_plan_step("a"), a_plan_step("b", skill="write")]
    assert calls_mismatch([], steps, (a_call("read"), None), setup) == (
        "make exactly these calls, in this order: write; you made none"
    )
