"""Repeatedly failing steps: when they are stopped, and what a person can decide about them."""

from typing import Any

import pytest

from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.decisions.tool_calls.repeated_calls import (
    MAX_REPEATED_CALLS,
    stopped_call_text,
    with_failed_call,
    with_resolved_repeated_call,
    without_failures_of,
)
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.questions import Choice, Question, Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.recovery import RepeatedCall, StepIteration
from tests.support.values.core import a_call, a_state, at

CALL = a_call("search", q="cats")
KEY = call_fingerprint(CALL)
SAME = "timed out after 1041 ms"
ALIKE = "timed out after 1042 ms"
OTHER = "no such index: cats"


def tracked(**settings: Any) -> AgentState:
    """Return the state of a run with these settings, or with null."""
    steps = StepIteration(**settings) if settings else None
    return a_state(input=AgentInput(task="t", config=LoopConfig(step_iteration=steps)))


def after(state: AgentState, *errors: str) -> AgentState:
    for error in errors:
        state = with_failed_call(state, CALL, error, at(1))
    return state


def asked(state: AgentState) -> Question:
    (question,) = state.questions
    return question


def resolved(state: AgentState, choice: Choice, **fields: str) -> AgentState:
    question = asked(state)
    decision = Resolution(escalation_id=question.question_id, choice=choice, **fields)
    return with_resolved_repeated_call(state, question.with_resolution(decision))


@pytest.mark.parametrize(
    ("settings", "errors", "stopped"),
    [
        pytest.param({}, [SAME], "", id="one failure"),
        pytest.param({}, [SAME, OTHER], "failed attempts: 2", id="the default limit of two failures"),
        pytest.param({}, [SAME, ALIKE], "it failed 2 times, the last two alike", id="two similar failures"),
        pytest.param({"max_reattempts": 5}, [SAME, OTHER, SAME], "", id="below the limit, never two similar in a row"),
        pytest.param(
            {"max_reattempts": 5},
            [SAME, OTHER, OTHER],
            "it failed 3 times, the last two alike",
            id="two similar failures below the limit",
        ),
        pytest.param({"max_reattempts": 1}, [SAME], "failed attempts: 1", id="no second attempt"),
        pytest.param(
            {"max_reattempts": 5, "similarity_threshold": 4 / 7},
            ["kitten", "sitting"],
            "it failed 2 times, the last two alike",
            id="exactly at the threshold",
        ),
        pytest.param(
            {"max_reattempts": 5, "similarity_threshold": 4 / 7 + 0.001},
            ["kitten", "sitting"],
            "",
            id="just below the threshold",
        ),
        pytest.param({"max_reattempts": 5}, ["", ""], "it failed 2 times, the last two alike", id="without a text"),
        pytest.param({"enabled": False}, [SAME] * 9, "", id="disabled"),
    ],
)
def test_a_step_is_stopped_at_the_limit_or_after_similar_failures(
    settings: dict[str, Any], errors: list[str], stopped: str
) -> None:
    state = after(tracked(**settings), *errors)
    assert state.steps.get(KEY, RepeatedCall(tool="search")).stopped == stopped
    assert (stopped_call_text(state, CALL) != "") is (stopped != "")
    assert [note.event for note in state.notes] == (["StepLimitReached"] if stopped else [])


def test_the_model_gets_the_reason_and_alternatives() -> None:
    assert stopped_call_text(after(tracked(), SAME, OTHER), CALL) == (
        "[Step limit] search with these arguments is not run again: failed attempts: 2. "
        "Use other arguments or another tool, or go on without it."
    )


def test_the_stop_is_noted_with_its_step() -> None:
    (note,) = after(tracked(), SAME, OTHER).notes
    assert note.data == {"step_id": KEY, "tool": "search", "attempts": 2, "reason": "failed attempts: 2"}


def test_a_step_is_a_tool_with_its_arguments() -> None:
    state = after(tracked(), SAME, SAME)
    assert stopped_call_text(state, a_call("search", "another id", q="cats"))
    assert stopped_call_text(state, a_call("search", q="dogs")) == ""
    assert stopped_call_text(state, a_call("find", q="cats")) == ""
    assert call_fingerprint(a_call(a=1, b=2)) == call_fingerprint(a_call(b=2, a=1))


def test_a_success_resets_the_failures() -> None:
    state = without_failures_of(after(tracked(), SAME), CALL)
    assert state.steps == {}
    assert stopped_call_text(after(state, SAME), CALL) == ""


def test_a_failure_of_a_stopped_step_changes_nothing() -> None:
    """The same call twice in one reply: both were running when the first one stopped the step."""
    stopped = after(tracked(on_limit_reached="escalate"), SAME, SAME)
    assert after(stopped, SAME) == stopped


def test_abort_task_ends_the_run() -> None:
    state = after(tracked(on_limit_reached="abort_task"), SAME, SAME)
    assert state.stop == ("error", f"step limit of search, it failed 2 times, the last two alike: {SAME}")


def test_abort_task_keeps_an_earlier_ending() -> None:
    state = tracked(on_limit_reached="abort_task").model_copy(update={"stop": ("timeout", "late")})
    assert after(state, SAME, SAME).stop == ("timeout", "late")


def test_escalate_asks_a_person_and_stops_the_clock() -> None:
    state = after(tracked(on_limit_reached="escalate").model_copy(update={"iteration": 4}), SAME, SAME)
    question = asked(state)
    assert (question.question_id, question.kind, question.since, state.stop) == ("step-4-1", "escalation", at(1), None)
    assert question.text == "search gets nowhere, failed attempts: 2. Retry, skip, give its result, or abort?"
    assert question.data == {
        "step_id": KEY,
        "tool": "search",
        "arguments": '{"q":"cats"}',
        "attempts": 2,
        "error": SAME,
    }
    assert state.clock.stopped_at == at(1)
    assert stopped_call_text(state, CALL)


def test_cut_arguments_in_a_question_are_marked() -> None:
    """A question never omits arguments without a note."""
    state = tracked(on_limit_reached="escalate", max_reattempts=1)
    data = asked(with_failed_call(state, a_call("search", q="é" * 2_000, to="x"), SAME, at(1))).data
    assert "[cut: 4017 bytes in all" in data["arguments"]
    assert (data["arguments_bytes"], data["arguments_digest"][:7]) == (4_017, "sha256:")


def test_two_steps_of_one_iteration_are_two_questions() -> None:
    state = after(tracked(on_limit_reached="escalate", max_reattempts=1), SAME)
    state = with_failed_call(state, a_call("read", path="a"), OTHER, at(1))
    assert [each.question_id for each in state.questions] == ["step-0-1", "step-0-2"]


ESCALATED = after(tracked(on_limit_reached="escalate"), SAME, SAME)


def test_an_open_question_changes_nothing() -> None:
    assert with_resolved_repeated_call(ESCALATED, asked(ESCALATED)) == ESCALATED


def test_retry_resets_the_attempts() -> None:
    state = resolved(ESCALATED, "retry")
    assert (state.steps, stopped_call_text(state, CALL)) == ({}, "")


def test_skip_stops_the_step_permanently() -> None:
    state = resolved(ESCALATED, "skip", by="anna", reason="not needed")
    assert "an operator skipped it (anna): not needed" in stopped_call_text(state, CALL)
    assert state.stop is None


def test_a_result_goes_to_the_model_and_answers_later_calls() -> None:
    state = resolved(ESCALATED, "result", result="3 cats")
    reported = state.conversation.messages[-1]
    assert (reported.role, reported.text) == ("user", '[Result from the operator] search {"q":"cats"}\n3 cats')
    assert "an operator gave its result: 3 cats" in stopped_call_text(state, CALL)


def test_abort_ends_the_run_as_escalated() -> None:
    state = resolved(ESCALATED, "abort", by="anna", reason="hopeless")
    assert state.stop == ("escalated", "search: an operator ended the run (anna): hopeless")


def test_a_decision_about_a_forgotten_step_still_applies() -> None:
    question = asked(ESCALATED)
    decided = question.with_resolution(Resolution(escalation_id=question.question_id, choice="skip"))
    state = with_resolved_repeated_call(ESCALATED.model_copy(update={"steps": {}}), decided)
    assert state.steps[KEY] == RepeatedCall(tool="search", stopped="an operator skipped it")


def test_only_the_newest_steps_are_kept() -> None:
    state = tracked(max_reattempts=5)
    for number in range(MAX_REPEATED_CALLS + 1):
        state = with_failed_call(state, a_call("search", n=number), "x" * 100_000, at(1))
    assert len(state.steps) == MAX_REPEATED_CALLS
    assert call_fingerprint(a_call("search", n=0)) not in state.steps
    assert call_fingerprint(a_call("search", n=MAX_REPEATED_CALLS)) in state.steps
    assert len(state.model_dump_json()) < 200_000
