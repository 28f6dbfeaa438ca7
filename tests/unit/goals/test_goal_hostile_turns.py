"""Hostile text in every reply of a goal is ignored or reported to the model, and the state stays valid and bounded."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_core import to_json

from orga.workflows.decisions.continue_as_new import continue_as_new_state
from orga.workflows.decisions.goals import prompts
from orga.workflows.decisions.goals.endings import best_effort_answer, goal_details, goal_result, goal_status
from orga.workflows.decisions.goals.pursue import (
    steps_to_evaluate,
    with_compressed_memory,
    with_decision,
    with_evaluation,
    with_plan,
    with_round,
    with_round_outcomes,
)
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.pursuit import (
    MAX_GOAL_CHARS,
    MAX_ID_CHARS,
    MAX_KEPT_STEPS,
    MAX_MEMORY_CHARS,
    MAX_QUESTION_CHARS,
    MAX_SUMMARY_CHARS,
    GoalState,
)
from orga.workflows.types.goals.requests import GoalReply
from tests.support.values.core import a_setup, at
from tests.support.values.goals import a_goal, a_plan_step, a_turn, step_outcomes
from tests.support.values.hostile_turns import HOSTILE_TURNS

SETUP = a_setup()


def under_way(*statuses: str, **pursuit: Any) -> GoalState:
    """Return a goal after its first round, with one open step."""
    steps = [a_plan_step(each) for each in ("a", "c")[: len(statuses)]]
    state = with_round(a_goal(*steps, a_plan_step("b", "open", None, "a"), memory="what was before"))
    return with_round_outcomes(state, step_outcomes(state, statuses)).with_pursuit(**pursuit)


def planned(state: GoalState, reply: GoalReply) -> GoalState:
    return with_plan(state, reply, SETUP)


def decided(state: GoalState, reply: GoalReply) -> GoalState:
    return with_decision(state, reply, SETUP)


TURNS: dict[str, tuple[Callable[[GoalState, GoalReply], GoalState], GoalState]] = {
    "plan": (planned, a_goal()),
    "evaluate": (with_evaluation, under_way("ok")),
    "evaluate two": (with_evaluation, under_way("ok", "ok")),
    "decide": (decided, under_way("ok", stage="decide")),
    "compress": (with_compressed_memory, under_way("ok", stage="compress")),
}


def check_bounds(state: GoalState) -> None:
    pursuit = state.pursuit
    assert len(pursuit.memory) <= MAX_MEMORY_CHARS
    assert len(pursuit.question) <= MAX_QUESTION_CHARS
    assert len(pursuit.steps) <= MAX_KEPT_STEPS + state.goal_config.max_plan_steps
    for step in pursuit.steps:
        assert (len(step.id) <= MAX_ID_CHARS, len(step.goal) <= MAX_GOAL_CHARS) == (True, True)
        assert len(step.depends_on) <= len(pursuit.steps)
        assert len(step.label) + len(step.summary) <= 40 + MAX_SUMMARY_CHARS
        assert step.scores is None or 1 <= step.scores.mean <= 5
    assert pursuit.confidence is None or 0 <= pursuit.confidence <= 1
    assert "\x00" not in to_json(pursuit).decode()


def check_shown(state: GoalState) -> None:
    """Assert that the state can be shown, put into prompts and returned as a result."""
    asked = [
        prompts.plan_prompt(state, SETUP),
        prompts.input_prompt(state, state.pursuit.open_steps, is_planned=True),
        prompts.evaluate_prompt(state, state.pursuit.due_steps),
        prompts.decide_prompt(state, SETUP),
        prompts.compress_prompt(state),
        prompts.summary_prompt(state),
    ]
    assert all(0 < len(text) < 20_000 for text in asked)
    shown = [
        goal_status(state, at(1)),
        goal_result(state, Stop("stuck", ""), at(1)),
        goal_details(state),
        *state.notes,
        *asked,
    ]
    assert to_json(shown)
    assert "a: g" in best_effort_answer(state, Stop("stuck", "")) or not steps_to_evaluate(state.pursuit)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("written", HOSTILE_TURNS)
def test_hostile_text_is_ignored_or_reported(turn: str, written: str) -> None:
    take_in, before = TURNS[turn]
    after = take_in(before, a_turn(HOSTILE_TURNS[written]))

    is_told = after.pursuit.unusable == before.pursuit.unusable + 1
    latest = after.conversation.messages[-1].text
    assert is_told is latest.startswith("[Reply not usable] ")
    assert is_told or turn == "compress" or after.pursuit.stage != before.pursuit.stage
    assert not is_told or (after.pursuit.steps, after.pursuit.memory) == (before.pursuit.steps, before.pursuit.memory)
    assert not is_told or len(latest) < 5_000
    check_bounds(after)
    assert GoalState.model_validate_json(continue_as_new_state(after, "").model_dump_json()).pursuit == after.pursuit
    check_shown(after)


def test_inserted_text_is_not_expanded_in_a_prompt() -> None:
    words = "{goal} {0} %s ${HOME} {{x}}"
    state = under_way("ok", memory=words)
    for text in (prompts.decide_prompt(state, SETUP), prompts.plan_prompt(state, SETUP), prompts.summary_prompt(state)):
        assert text.count(words) == 1


@pytest.mark.parametrize(
    ("written", "mean"),
    [
        ("scores as fractions", 4.0),
        ("scores in percent", 4.0),
        ("scores beyond", 5.0),
        ("scores below", 1.0),
        ("a label against its scores", 1.0),
        ("scores twice", 5.0),
    ],
)
def test_unusual_scores_are_read_by_their_meaning(written: str, mean: float) -> None:
    after = with_evaluation(under_way("ok"), a_turn(HOSTILE_TURNS[written]))
    scores = after.pursuit.steps[0].scores
    assert (scores and scores.mean, after.pursuit.steps[0].state) == (mean, "failed" if mean < 2 else "done")


@pytest.mark.parametrize(
    "case",
    [
        *["a fence in a string", "a confidence in percent"],
        *["an integer of 400 digits", "infinity", "NaN", "an action of another case", "a confidence that is true"],
        *["a confidence that is a list", "two objects", "a key twice", "an action that is an object"],
    ],
)
def test_only_a_valid_confidence_ends_a_goal(case: str) -> None:
    """An unreadable value is no confidence. The first of two objects counts, and a repeated key is invalid."""
    after = decided(under_way("ok", stage="decide"), a_turn(HOSTILE_TURNS[case]))
    is_sure = case in {"a fence in a string", "a confidence in percent"}
    assert (after.pursuit.ending == ("completed", "")) is is_sure
