"""Both sides of every limit of a goal, tested through the decisions that handle a reply or a round."""

from collections.abc import Callable
from typing import Any

import pytest

from orga.workflows.decisions.goals.endings import can_be_summarised, goal_stop
from orga.workflows.decisions.goals.plans import parsed_plan
from orga.workflows.decisions.goals.pursue import (
    GUIDANCE_INSTEAD_TEXT,
    NO_ANSWER_TEXT,
    with_decision,
    with_decision_by_rules,
    with_evaluation,
    with_person_answer,
    with_plan,
    with_round,
    with_round_outcomes,
    with_unusable_reply,
)
from orga.workflows.decisions.goals.replies import UnusableReply
from orga.workflows.types.goals.pursuit import GoalState, StepState
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import UsageTotals
from tests.support.values.core import a_setup, at
from tests.support.values.goals import a_goal, a_plan_step, a_turn, all_of, planned_steps, step_outcomes

SETUP = a_setup()
LATER = a_plan_step("b", "open", None, "a")
JUDGED = a_plan_step("a", "done", 3)


def decided(state: GoalState, **fields: Any) -> GoalState:
    return with_decision(state, a_turn(**fields), SETUP)


def executed(state: GoalState, *statuses: str) -> GoalState:
    state = with_round(state)
    return with_round_outcomes(state, step_outcomes(state, statuses))


def evaluated(state: GoalState, score: float, memory: str = "") -> GoalState:
    return with_evaluation(
        state, a_turn(steps=[{"id": each, **all_of(score)} for each in state.pursuit.due], memory=memory)
    )


@pytest.mark.parametrize("confidence", [0.7, "70%", 70, "3.5/5"])
def test_done_counts_at_the_required_confidence(confidence: object) -> None:
    after = decided(a_goal(JUDGED, LATER), action="done", confidence=confidence)
    assert (after.pursuit.stage, after.pursuit.ending) == ("summarise", ("completed", ""))


@pytest.mark.parametrize(
    ("states", "is_taken"),
    [
        pytest.param(("failed",), False, id="the only step failed"),
        pytest.param(("failed", "failed", "open"), False, id="all attempted steps failed"),
        pytest.param(("failed", "done"), True, id="one of them is done"),
        pytest.param(("open",), True, id="no step was attempted"),
    ],
)
def test_done_does_not_count_if_every_step_failed(states: tuple[StepState, ...], is_taken: bool) -> None:
    steps = (a_plan_step(f"s{number}", state) for number, state in enumerate(states))
    after = decided(a_goal(*steps, stage="decide"), action="done", confidence=1)
    assert after.pursuit.ending == (("completed", "") if is_taken else None)
    assert ("done: every step failed" in after.conversation.messages[-1].text) is not is_taken


@pytest.mark.parametrize(
    ("answer", "is_taken"), [("1999", True), (GUIDANCE_INSTEAD_TEXT, True), (NO_ANSWER_TEXT, False)]
)
def test_an_answer_of_a_person_can_complete_a_goal(answer: str, is_taken: bool) -> None:
    asked = decided(a_goal(a_plan_step("a", "failed")), action="ask_user", question="Which year?")
    after = decided(with_person_answer(asked, answer), action="done", confidence=1)
    assert after.pursuit.ending == (("completed", "") if is_taken else None)


@pytest.mark.parametrize(
    "confidence", [0.6999, "69.99%", 69.99, "3.49/5", "1/5", None, 10**400], ids=lambda confidence: str(confidence)[:10]
)
def test_done_below_the_required_confidence_continues_or_asks_again(confidence: object) -> None:
    after = decided(a_goal(JUDGED, LATER), action="done", confidence=confidence)
    assert (after.pursuit.stage, after.pursuit.ending, after.pursuit.unusable) == ("execute", None, 0)
    reported = decided(a_goal(JUDGED, stage="decide"), action="done", confidence=confidence)
    assert (reported.pursuit.stage, reported.pursuit.ending, reported.pursuit.unusable) == ("decide", None, 1)


@pytest.mark.parametrize(("score", "state"), [(1.99, "failed"), (2.0, "done"), (3.49, "done"), (3.5, "done")])
def test_a_step_with_a_useless_result_has_failed(score: float, state: str) -> None:
    after = evaluated(executed(a_goal(a_plan_step("a")), "ok"), score)
    assert (after.pursuit.steps[0].state, after.pursuit.bad) == (state, int(state == "failed"))
    is_done = with_decision_by_rules(after)
    assert (is_done is not None and is_done.pursuit.ending is not None) is (score == 3.5)


@pytest.mark.parametrize(("rounds", "stops"), [(14, False), (15, True), (16, True)])
def test_the_limit_of_rounds_applies_only_before_a_new_round(rounds: int, stops: bool) -> None:
    state = a_goal(LATER, rounds=rounds)
    assert (goal_stop(state, at(0), counts_rounds=True) is not None) is stops
    assert goal_stop(state, at(0), counts_rounds=False) is None
    assert can_be_summarised(state, at(0))


@pytest.mark.parametrize(
    ("calls", "stops", "may_answer"), [(58, False, True), (59, True, True), (60, True, False), (61, True, False)]
)
def test_the_last_model_call_is_reserved_for_the_answer(calls: int, stops: bool, may_answer: bool) -> None:
    state = a_goal(LATER).with_budget(usage=UsageTotals(model_calls=calls))
    assert (goal_stop(state, at(0), counts_rounds=False) is not None) is stops
    assert can_be_summarised(state, at(0)) is may_answer


@pytest.mark.parametrize(
    ("config", "steps", "limit_s"),
    [
        pytest.param({}, 0, 300, id="no plan yet"),
        pytest.param({}, 1, 600, id="one step plus one budget for the rest"),
        pytest.param({}, 3, 1_200, id="three steps"),
        pytest.param({"step_budget_s": 10}, 3, 40, id="a smaller budget for each step"),
        pytest.param({"timeout_s": 50}, 3, 50, id="an explicit time limit"),
    ],
)
def test_the_time_limit_grows_with_the_longest_plan(config: dict[str, Any], steps: int, limit_s: float) -> None:
    state = a_goal(*(a_plan_step(f"s{n}") for n in range(steps)), config=config)
    assert goal_stop(state, at(limit_s - 0.001), counts_rounds=True) is None
    assert goal_stop(state, at(limit_s), counts_rounds=True) == ("timeout", f"limit of {limit_s:g} s")


@pytest.mark.parametrize(
    ("size", "rounds", "stage"), [(500, 3, "decide"), (501, 3, "compress"), (501, 2, "decide"), (501, 6, "compress")]
)
def test_a_long_memory_is_compressed_every_third_round(size: int, rounds: int, stage: str) -> None:
    """The limit counts bytes, not characters. An umlaut has two bytes."""
    state = executed(a_goal(a_plan_step("a"), rounds=rounds - 1), "ok")
    assert evaluated(state, 3, "m" * size).pursuit.stage == stage
    assert evaluated(state, 3, "ü" * (size // 2) + "m" * (size % 2)).pursuit.stage == stage


@pytest.mark.parametrize(("rounds", "ends"), [(2, False), (3, True)])
def test_the_third_identical_round_ends_the_goal_even_if_all_were_good(rounds: int, ends: bool) -> None:
    state = a_goal()
    for number in range(rounds):
        step = a_plan_step(f"s{number}").with_fields(arguments={"at": 1})
        state = evaluated(executed(state.with_pursuit(steps=(*state.pursuit.steps, step)), "ok"), 5)
    after = with_decision_by_rules(state)
    assert after is not None
    assert after.pursuit.ending == (("stuck", "the same calls, 3 rounds in a row") if ends else ("completed", ""))


def bad_plan(state: GoalState) -> GoalState:
    return with_plan(state, a_turn("I would rather not"), SETUP)


def bad_decision(state: GoalState) -> GoalState:
    return decided(state, action="give up")


def bad_adjust(state: GoalState) -> GoalState:
    return decided(state, action="adjust", confidence=0.9, steps=[])


def bad_evaluation(state: GoalState) -> GoalState:
    return with_evaluation(state, Reply.of(text="fine"))


def bad_calls(state: GoalState) -> GoalState:
    return with_unusable_reply(state, "make exactly these calls")


def sure_adjust(state: GoalState) -> GoalState:
    steps = planned_steps(f"n{len(state.pursuit.steps)}{state.pursuit.adjusted}")
    return decided(state, action="adjust", confidence=0.7, steps=steps)


def failing_round(state: GoalState) -> GoalState:
    step = a_plan_step(f"s{state.pursuit.rounds}")
    return executed(state.with_pursuit(steps=(*state.pursuit.steps, step)), "failed")


def useless_round(state: GoalState) -> GoalState:
    step = a_plan_step(f"s{state.pursuit.rounds}")
    return evaluated(executed(state.with_pursuit(steps=(*state.pursuit.steps, step)), "ok"), 1)


KINDS = [bad_plan, bad_decision, bad_adjust, bad_evaluation, bad_calls, sure_adjust, failing_round, useless_round]


@pytest.mark.parametrize("befall", KINDS)
def test_the_third_failure_of_each_kind_ends_the_goal(befall: Callable[[GoalState], GoalState]) -> None:
    state = a_goal()
    for _ in range(2):
        state = befall(state)
        assert state.pursuit.ending is None
    assert (with_decision_by_rules(state) or state).pursuit.ending is None
    state = befall(state)
    state = state if state.pursuit.ending else with_decision_by_rules(state) or state
    assert (state.pursuit.ending or ("",))[0] == "stuck"


@pytest.mark.parametrize("threshold", [1, 5])
def test_the_goal_config_sets_the_stuck_threshold(threshold: int) -> None:
    state = a_goal(config={"stuck_threshold": threshold})
    for number in range(1, threshold + 1):
        state = bad_decision(state)
        assert (state.pursuit.ending is not None) is (number == threshold)


def test_streaks_of_different_kinds_are_separate_and_a_success_ends_its_own() -> None:
    state = bad_plan(bad_plan(a_goal()))
    state = failing_round(state)
    assert (state.pursuit.unusable, state.pursuit.errors) == (0, 1)
    state = bad_evaluation(bad_evaluation(executed(state.with_pursuit(steps=(a_plan_step("c"),)), "ok")))
    assert (state.pursuit.unusable, state.pursuit.errors) == (2, 0)
    assert evaluated(state, 4).pursuit.unusable == 0


def test_an_unsure_change_of_plan_resets_its_streak() -> None:
    state = sure_adjust(sure_adjust(a_goal()))
    state = decided(state, action="adjust", confidence=0.69, steps=planned_steps("x"))
    assert (state.pursuit.adjusted, state.pursuit.ending) == (0, None)


@pytest.mark.parametrize(
    ("at_most", "over"),
    [
        pytest.param(planned_steps(*"abcdefgh"), planned_steps(*"abcdefghi"), id="steps"),
        pytest.param(planned_steps("i" * 40), planned_steps("i" * 41), id="the characters of an id"),
        pytest.param(
            [planned_steps("a")[0] | {"arguments": {"x": "y" * 3_992}}],
            [planned_steps("a")[0] | {"arguments": {"x": "y" * 3_993}}],
            id="the bytes of arguments",
        ),
    ],
)
def test_a_plan_has_a_maximum_size(at_most: list[Any], over: list[Any]) -> None:
    assert len(parsed_plan(at_most, {"read": ""}, 8)) == len(at_most)
    with pytest.raises(UnusableReply, match="at most"):
        parsed_plan(over, {"read": ""}, 8)


@pytest.mark.parametrize(("ready", "due"), [(4, 4), (5, 4)])
def test_a_limited_number_of_steps_runs_in_parallel(ready: int, due: int) -> None:
    state = with_round(a_goal(*(a_plan_step(f"s{n}") for n in range(ready))))
    assert len(state.pursuit.due) == due
