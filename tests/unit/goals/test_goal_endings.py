"""The result of a goal without a written answer: outputs with sources, scores, and remaining work."""

import pytest

from orga.workflows.decisions.goals.endings import best_effort_answer, goal_result
from orga.workflows.decisions.goals.progress import result_confidence
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.pursuit import PlanStep
from tests.support.values.core import T0
from tests.support.values.goals import a_goal, a_plan_step

TIMEOUT = Stop("timeout", "900 s")


def test_findings_are_listed_with_sources_and_scores_and_open_steps_with_their_cause() -> None:
    steps = (
        a_plan_step("a", "done", 4.0).with_fields(source='read "a.md"', summary="it says five"),
        a_plan_step("b", "done").with_fields(source='read "b.md"', summary="not judged yet"),
        a_plan_step("c", "failed").with_fields(error="[Error] no such file\nat all"),
        a_plan_step("d", "failed", 1.0).with_fields(summary="another topic"),
        a_plan_step("e"),
    )
    assert best_effort_answer(a_goal(*steps), TIMEOUT).splitlines() == [
        f"The goal ended early: timeout (900 s). Confidence {result_confidence(steps):.2f}. What was found until then:",
        "",
        '- a: g (read "a.md"; good, 4.0 of 5)',
        "it says five",
        "",
        '- b: g (read "b.md")',
        "not judged yet",
        "",
        "Not done: c (failed: [Error] no such file at all), d (failed: another topic), e.",
    ]


def test_a_goal_without_findings_explains_why() -> None:
    steps = a_plan_step("a", "failed").with_fields(error="[Error] no such file"), a_plan_step("b")
    why = "The goal ended early: timeout (900 s). Nothing was done."
    assert best_effort_answer(a_goal(*steps), TIMEOUT) == f"{why}\n\nNot done: a (failed: [Error] no such file), b."
    assert best_effort_answer(a_goal(), TIMEOUT) == why


@pytest.mark.parametrize(
    ("steps", "output", "stop", "brought"),
    [
        pytest.param(
            (),
            "",
            Stop("aborted", "not now"),
            "The goal ended early: aborted (not now). Nothing was done.",
            id="at once",
        ),
        pytest.param(
            (a_plan_step("a", "failed"),),
            "",
            Stop("stuck"),
            "The goal ended early: stuck. Nothing was done.",
            id="nothing was allowed",
        ),
        pytest.param((a_plan_step("a", "failed"),), "because", Stop("stuck"), "because", id="the model explains why"),
        pytest.param((a_plan_step("a", "done"),), "", Stop("timeout", ""), "", id="findings that were not allowed"),
    ],
)
def test_a_goal_without_an_answer_has_this_output(
    steps: tuple[PlanStep, ...], output: str, stop: Stop, brought: str
) -> None:
    assert goal_result(a_goal(*steps).with_task(output=output), stop, T0).output == brought
