"""Waits for a person: asked, decided once, closed; the clock stands still while one is open."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import with_pause, with_resume
from orga.workflows.decisions.control.questions import asked, closed, parsed_resolution, with_resolution
from orga.workflows.types.questions import Choice, Question, QuestionKind, Resolution
from orga.workflows.types.state import AgentState
from tests.support.values.core import T0, a_state, at
from tests.support.values.strategies import LAW

CHOICES: dict[QuestionKind, tuple[Choice, ...]] = {
    "escalation": ("retry", "skip", "result", "abort"),
    "budget": ("skip", "abort"),
}


def a_question(question_id: str = "w", kind: QuestionKind = "escalation") -> Question:
    choices = CHOICES.get(kind, ())
    return Question(question_id=question_id, kind=kind, since=T0, text="what now?", choices=choices)


def decided(wait_id: str = "w", choice: Choice = "skip", **fields: Any) -> Resolution:
    return Resolution(escalation_id=wait_id, choice=choice, **fields)


def test_the_first_decision_stays() -> None:
    state = asked(a_state(), a_question(), T0)
    state = with_resolution(state, decided(choice="retry"), at(1))
    state = with_resolution(state, decided(choice="abort"), at(2))
    assert [each.resolution and each.resolution.choice for each in state.questions] == ["retry"]


def test_asking_and_deciding_are_noted() -> None:
    state = asked(a_state(), a_question(), T0)
    state = closed(with_resolution(state, decided(by="ada"), at(1)), "w", at(2))
    assert [(note.event, note.data.get("choice"), note.data.get("by")) for note in state.notes] == [
        ("ApprovalRequested", None, None),
        ("ApprovalResolved", "skip", "ada"),
    ]
    assert state.questions == ()


def test_a_wait_that_nobody_decided_is_closed_without_a_choice() -> None:
    state = closed(asked(a_state(), a_question(), T0), "w", at(1))
    assert state.notes[-1].data["choice"] == "none"


def test_closing_what_does_not_wait_changes_nothing() -> None:
    state = a_state()
    assert closed(state, "w", T0) is state


def test_a_week_of_waiting_costs_no_time() -> None:
    state = asked(a_state(), a_question(), at(10))
    assert state.clock.elapsed_s(at(600_000)) == 10
    state = with_resolution(state, decided(), at(700_000))
    assert state.clock.elapsed_s(at(700_005)) == 15


def test_the_clock_goes_only_when_nothing_holds_it() -> None:
    state = with_pause(asked(a_state(), a_question(), at(10)), at(20))
    state = with_resolution(state, decided(), at(30))
    assert state.clock.elapsed_s(at(1_000)) == 10
    assert with_resume(state, at(1_000)).clock.elapsed_s(at(1_001)) == 11


ACTIONS = st.lists(st.tuples(st.sampled_from(["pause", "resume", "ask", "decide"]), st.integers(0, 100)), max_size=20)


@LAW
@given(ACTIONS)
def test_time_that_counts_is_the_time_in_which_nothing_held_the_run(actions: list[tuple[str, int]]) -> None:
    state, now, counted, paused, waits = a_state(), 0, 0, False, 0
    for action, seconds in actions:
        counted += 0 if paused or waits else seconds
        now += seconds
        state, paused, waits = _acted(state, action, now, paused, waits)
    assert state.clock.elapsed_s(at(now)) == counted


def _acted(state: AgentState, action: str, now: int, paused: bool, waits: int) -> tuple[AgentState, bool, int]:
    match action:
        case "pause":
            return with_pause(state, at(now)), True, waits
        case "resume":
            return with_resume(state, at(now)), False, waits
        case "ask":
            return asked(state, a_question(f"w{len(state.questions)}"), at(now)), paused, waits + 1
        case _:
            open_ids = [each.question_id for each in state.questions if each.is_open]
            if not open_ids:
                return state, paused, waits
            return with_resolution(state, decided(open_ids[0]), at(now)), paused, waits - 1


@pytest.mark.parametrize(
    ("kind", "raw", "says"),
    [
        pytest.param("escalation", {"escalation_id": "x", "choice": "skip"}, "no escalation 'x' waits", id="unknown"),
        pytest.param("escalation", {"escalation_id": "w", "choice": "go"}, "choice: ", id="no such choice"),
        pytest.param("escalation", {"escalation_id": "w"}, "choice: ", id="no choice"),
        pytest.param("escalation", {"escalation_id": "w", "choice": "skip", "x": 1}, "x: unknown key", id="more"),
        pytest.param("escalation", None, "input: ", id="nothing"),
        pytest.param("approval", {"escalation_id": "w", "choice": "skip"}, "approve and deny", id="held calls"),
        pytest.param("budget", {"escalation_id": "w", "choice": "retry"}, "extend_budget", id="a budget is raised"),
        pytest.param(
            "escalation",
            {"escalation_id": "w", "choice": "result", "result": "x" * 100_001},
            "must not be longer",
            id="a result too long",
        ),
    ],
)
def test_a_decision_that_does_not_fit_is_refused(kind: QuestionKind, raw: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parsed_resolution(asked(a_state(), a_question(kind=kind), T0), raw)


def test_a_decision_that_comes_late_is_refused() -> None:
    state = with_resolution(asked(a_state(), a_question(), T0), decided(choice="retry"), at(1))
    with pytest.raises(ValueError, match="decided already: retry"):
        parsed_resolution(state, {"escalation_id": "w", "choice": "skip"})
