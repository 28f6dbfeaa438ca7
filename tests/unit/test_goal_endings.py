"""What a goal brings where no model writes its answer: outputs with their sources, what each is worth, what is left."""

from orga.workflows.decisions.goals.endings import best_effort
from orga.workflows.decisions.goals.progress import confidence_of
from tests.support.values.goals import a_goal, a_plan_step

TIMEOUT = ("timeout", "900 s")


def test_findings_come_with_their_sources_and_scores_and_what_is_left_with_its_cause() -> None:
    steps = (
        a_plan_step("a", "done", 4.0).with_fields(source='read "a.md"', summary="it says five"),
        a_plan_step("b", "done").with_fields(source='read "b.md"', summary="not judged yet"),
        a_plan_step("c", "failed").with_fields(error="[Error] no such file\nat all"),
        a_plan_step("d", "failed", 1.0).with_fields(summary="another topic"),
        a_plan_step("e"),
    )
    assert best_effort(a_goal(*steps), TIMEOUT).splitlines() == [
        f"The goal ended early: timeout (900 s). Confidence {confidence_of(steps):.2f}. What was found until then:",
        "",
        '- a: g (read "a.md"; good, 4.0 of 5)',
        "it says five",
        "",
        '- b: g (read "b.md")',
        "not judged yet",
        "",
        "Not done: c (failed: [Error] no such file at all), d (failed: another topic), e.",
    ]


def test_nothing_found_is_nothing_brought() -> None:
    assert best_effort(a_goal(a_plan_step("a", "failed"), a_plan_step("b")), TIMEOUT) == ""
