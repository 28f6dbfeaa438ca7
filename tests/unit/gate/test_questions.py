"""Questions to people are asked, decided once and closed. The clock stops while one is open."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import with_pause, with_resume
from orga.workflows.decisions.control.questions import (
    parsed_resolution,
    with_expired_decisions,
    with_item_decision,
    with_question,
    with_resolution,
    without_question,
)
from orga.workflows.types.questions import ApprovalDecision, Choice, Item, Question, QuestionKind, Resolution
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


def test_the_first_decision_counts() -> None:
    state = with_question(a_state(), a_question(), T0)
    state = with_resolution(state, decided(choice="retry"), at(1))
    state = with_resolution(state, decided(choice="abort"), at(2))
    assert [each.resolution and each.resolution.choice for each in state.questions] == ["retry"]


def test_questions_and_decisions_are_noted() -> None:
    state = with_question(a_state(), a_question(), T0)
    state = without_question(with_resolution(state, decided(by="ada"), at(1)), "w", at(2))
    assert [(note.event, note.data.get("choice"), note.data.get("by")) for note in state.notes] == [
        ("ApprovalRequested", None, None),
        ("ApprovalResolved", "skip", "ada"),
    ]
    assert state.questions == ()


def test_an_undecided_question_is_closed_without_a_choice() -> None:
    state = without_question(with_question(a_state(), a_question(), T0), "w", at(1))
    assert state.notes[-1].data["choice"] == "none"


def test_closing_an_unknown_question_changes_nothing() -> None:
    state = a_state()
    assert without_question(state, "w", T0) is state


def test_a_week_of_waiting_costs_no_time() -> None:
    state = with_question(a_state(), a_question(), at(10))
    assert state.clock.elapsed_seconds(at(600_000)) == 10
    state = with_resolution(state, decided(), at(700_000))
    assert state.clock.elapsed_seconds(at(700_005)) == 15


def test_the_clock_runs_only_if_nothing_stops_it() -> None:
    state = with_pause(with_question(a_state(), a_question(), at(10)), at(20))
    state = with_resolution(state, decided(), at(30))
    assert state.clock.elapsed_seconds(at(1_000)) == 10
    assert with_resume(state, at(1_000)).clock.elapsed_seconds(at(1_001)) == 11


ACTIONS = st.lists(st.tuples(st.sampled_from(["pause", "resume", "ask", "decide"]), st.integers(0, 100)), max_size=20)


@LAW
@given(ACTIONS)
def test_only_time_without_pauses_and_questions_counts(actions: list[tuple[str, int]]) -> None:
    state, now, counted, paused, waits = a_state(), 0, 0, False, 0
    for action, seconds in actions:
        counted += 0 if paused or waits else seconds
        now += seconds
        state, paused, waits = _acted(state, action, now, paused, waits)
    assert state.clock.elapsed_seconds(at(now)) == counted


def _acted(state: AgentState, action: str, now: int, paused: bool, waits: int) -> tuple[AgentState, bool, int]:
    match action:
        case "pause":
            return with_pause(state, at(now)), True, waits
        case "resume":
            return with_resume(state, at(now)), False, waits
        case "ask":
            return with_question(state, a_question(f"w{len(state.questions)}"), at(now)), paused, waits + 1
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
def test_an_invalid_decision_is_refused(kind: QuestionKind, raw: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parsed_resolution(with_question(a_state(), a_question(kind=kind), T0), raw)


def test_a_late_decision_is_refused() -> None:
    state = with_resolution(with_question(a_state(), a_question(), T0), decided(choice="retry"), at(1))
    with pytest.raises(ValueError, match="decided already: retry"):
        parsed_resolution(state, {"escalation_id": "w", "choice": "skip"})


def an_item(approval_id: str) -> Item:
    return Item(approval_id=approval_id, call={"call_id": "c", "name": "pay", "arguments": {}}, expires_at=at(900))


def about(*approval_ids: str) -> Question:
    items = tuple(map(an_item, approval_ids))
    return Question(question_id="w", kind="approval", since=at(50), text="pay?", items=items)


YES = ApprovalDecision(approval_id="a", approver="ada")


def test_a_repeated_question_keeps_its_time_and_answers() -> None:
    state = with_item_decision(with_question(a_state(), about("a", "b"), T0), YES, True, at(10))
    [question] = with_question(state, about("b", "a", "c"), at(60)).questions
    assert [(item.approval_id, item.answer is None) for item in question.items] == [
        ("b", True),
        ("a", False),
        ("c", True),
    ]
    assert question.since == at(50)


def test_a_question_about_other_items_is_closed_and_asked_again() -> None:
    state = with_question(a_state(announced=("w",)), about("a"), T0)
    state = with_question(state, about("b"), at(60))
    assert [(note.event, note.data.get("choice"), note.data["id"]) for note in state.notes] == [
        ("ApprovalRequested", None, "w"),
        ("ApprovalRequested", None, "a"),
        ("ApprovalResolved", "none", "w"),
        ("ApprovalRequested", None, "w"),
        ("ApprovalRequested", None, "b"),
    ]
    assert (state.announced, len(state.questions)) == ((), 1)
    assert state.clock.stopped_at == at(60)


def test_a_question_with_items_stops_the_clock_until_all_are_decided() -> None:
    state = with_question(a_state(), about("a", "b"), T0)
    state = with_item_decision(state, YES, True, at(10))
    assert state.phase == "waiting"
    state = with_expired_decisions(state, at(900), at(900))
    assert (state.phase, state.clock.stopped_at) == ("preparing", None)
    assert [item.answer and item.answer.approved for item in state.questions[0].items] == [True, False]


@pytest.mark.parametrize(
    ("fields", "phase"),
    [
        pytest.param({"doing": "acting"}, "acting", id="nothing stops the run"),
        pytest.param({"doing": "acting", "paused": True}, "acting", id="paused, before the run stops"),
        pytest.param({"doing": "acting", "paused": True, "is_standing": True}, "paused", id="stopped by a pause"),
        pytest.param({"is_standing": True, "questions": (a_question(),)}, "waiting", id="a question and a pause"),
        pytest.param({"is_over": True, "questions": (a_question(),)}, "done", id="the run has ended"),
    ],
)
def test_the_phase_shows_what_the_run_waits_for(fields: dict[str, Any], phase: str) -> None:
    assert a_state(**fields).phase == phase
