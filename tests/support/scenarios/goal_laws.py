"""Laws that hold for every goal, whatever its model, its steps and people do."""

from tests.support.scenarios import laws
from tests.support.scenarios.goal_stage import PlayedGoal


def rounds_and_model_calls_respect_their_limits(played: PlayedGoal) -> None:
    """The last model call is reserved for the answer, and people may raise the rounds."""
    raised = [
        entry.data["text"].get("max_iterations", 0)
        for entry in played.of("InterventionReceived")
        if entry.data["kind"] == "extend_budget"
    ]
    config, result = played.scenario.config, played.result
    assert result.rounds <= max([config["max_iterations"], *raised])
    assert result.usage.model_calls <= config["max_llm_calls"]
    assert played.most_in_flight <= config["max_parallel_steps"]


def a_step_is_executed_once_and_after_all_its_dependencies(played: PlayedGoal) -> None:
    executed = [entry.data["step"] for entry in played.of("StepExecuted")]
    assert len(executed) == len(set(executed))
    done = {step.id: step for step in played.result.steps}
    for step in played.result.steps:
        assert step.attempts == executed.count(step.id)
        assert (step.status == "open") is (step.attempts == 0)
        for need in step.depends_on:
            assert step.status == "open" or executed.index(need) < executed.index(step.id)
            assert step.status == "open" or done[need].status == "done"


def the_steps_match_the_calls_of_the_tools(played: PlayedGoal) -> None:
    """An interrupted call is not an executed step."""
    ok = sum(entry.data["status"] == "ok" for entry in played.of("StepExecuted"))
    calls = {context.idempotency_key for tool in played.tools.values() for context in tool.contexts}
    assert ok <= len(calls)
    assert [step.source for step in played.result.steps if step.status == "done" and not step.source] == []
    assert played.result.tool_calls.run >= ok


def each_question_is_recorded_with_its_answer(played: PlayedGoal) -> None:
    asked, answered = played.of("QuestionAsked"), played.of("QuestionAnswered")
    assert 0 <= len(asked) - len(answered) <= (played.result.termination.reason != "completed")


def a_step_override_is_applied_or_refused_once(played: PlayedGoal) -> None:
    """An accepted step is in the plan to the end, with the text of the last override."""
    refused = [each for each in played.of("InterventionRefused") if each.data["kind"] == "override_step"]
    received = [each for each in played.of("InterventionReceived") if each.data["kind"] == "override_step"]
    taken = [entry.data["step"] for entry in played.of("StepOverridden")]
    assert len(received) == len(refused) + len(taken)
    assert {*taken} <= {*played.result.plan}


def scores_make_the_confidence(played: PlayedGoal) -> None:
    assert 0 <= played.result.confidence <= 1
    is_worth_something = any(step.status == "done" and step.score for step in played.result.steps)
    assert is_worth_something or not played.result.confidence


def the_findings_are_returned(played: PlayedGoal) -> None:
    """This holds for every ending."""
    assert played.result.output or all(step.status != "done" for step in played.result.steps)


def only_an_abort_ends_a_goal_as_aborted(played: PlayedGoal) -> None:
    received = {entry.data["kind"] for entry in played.of("InterventionReceived")}
    declined = {entry.data.get("choice") for entry in played.of("ApprovalResolved")}
    reason = played.result.termination.reason
    assert reason != "aborted" or "abort" in received | declined
    assert reason in {"completed", "stuck", "aborted", "max_iterations", "policy_denial", "error"}


LAWS = (
    laws.every_call_is_answered_once_right_after_it,
    laws.only_offered_tools_are_shown_and_only_allowed_ones_run,
    laws.an_effect_that_cannot_be_undone_happens_once,
    laws.a_key_belongs_to_one_call,
    laws.the_result_counts_what_the_history_holds,
    laws.guidance_is_seen_in_the_order_of_its_arrival,
    laws.every_question_is_asked_once_and_closed_once,
    laws.the_last_status_is_that_of_the_result,
    rounds_and_model_calls_respect_their_limits,
    a_step_is_executed_once_and_after_all_its_dependencies,
    the_steps_match_the_calls_of_the_tools,
    each_question_is_recorded_with_its_answer,
    a_step_override_is_applied_or_refused_once,
    scores_make_the_confidence,
    the_findings_are_returned,
    only_an_abort_ends_a_goal_as_aborted,
)
