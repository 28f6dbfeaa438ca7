"""The end of a goal: its final answer through the gate, or the findings of its steps, and their delivery."""

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from orga.workflows.decisions import observe
from orga.workflows.decisions.goals import endings, prompts, pursue
from orga.workflows.decisions.goals.endings import (
    best_effort_answer,
    can_be_summarised,
    has_done_step,
    with_end_postponed,
)
from orga.workflows.decisions.goals.progress import UNFINISHED_STOPS
from orga.workflows.decisions.result import with_all_keys
from orga.workflows.decisions.review_stages import are_answers_in_question
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import show_dead_letters
from orga.workflows.phases.control.failure_text import failure_text, root_cause
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.goals.goal_phases import pass_gate
from orga.workflows.phases.goals.goal_run import GoalRun, ask_goal_prompt, take_interventions
from orga.workflows.phases.reason import paused_reply
from orga.workflows.phases.review_stages import conclude_reply
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.deliveries import Channel, Delivered
from orga.workflows.types.goals.pursuit import GoalResult
from orga.workflows.types.goals.requests import GoalRequest
from orga.workflows.types.names import DELIVER
from orga.workflows.types.state import AgentState

MAX_TRIES = 3
"""Attempts to write an answer that gate and critics accept."""


async def write_final_answer(run: GoalRun, ending: Stop) -> Stop | None:
    """Write the final answer, and return how the goal ends. None if there is new guidance that it has to follow.

    If people raise the limit meanwhile, it no longer ends the goal. If it raises ContinueAsNew, the next segment writes
    the answer, or asks about it again.
    """
    run.change_goal(pursue.with_ending, ending)
    limits_before = run.state.extended
    with suppress(Interrupted):
        for number in range(MAX_TRIES):
            is_planned = number == 0 and bool(run.planner.answer(run.goal, ending))
            if run.is_interrupted() or not (is_planned or can_be_summarised(run.goal, run.now)):
                break
            take_interventions(run, "summarising")
            await _add_answer(run, ending, is_planned=is_planned)
            if run.state.extended != limits_before:
                run.change_goal(with_end_postponed, run.now)
            if _is_ending_withdrawn(run) or _has_new_guidance(run, ending):
                run.change_goal(pursue.with_guidance_seen)
                return None
            # an accepted answer stops a completed goal; any other ending only takes it as output
            has_other_output = bool(run.state.output) and ending.reason != "completed"
            if run.state.stop is not None or has_other_output:
                break
    return _final_stop(run, ending)


async def _add_answer(run: GoalRun, ending: Stop, *, is_planned: bool) -> None:
    """Add a final answer after the gate and the stages. With `is_planned`, the planner gives it, and not the model."""

    def with_planned(request: GoalRequest) -> GoalRequest:
        return request.with_answer(run.planner.answer(run.goal, ending)) if is_planned else request

    if _is_ending_withdrawn(run):
        return
    proposed = paused_reply(run) or await ask_goal_prompt(run, "goal_summary", prompts.summary_prompt, with_planned)
    if proposed is None or _is_ending_withdrawn(run):
        return
    if proposed.classified.kind not in {"answer", "cut_answer"}:
        run.change_state(observe.with_repair, proposed.classified)
        return
    conclude_reply(run, await pass_gate(run, proposed))


def _is_ending_withdrawn(run: GoalRun) -> bool:
    """Return True if guidance, or a raised limit, has withdrawn the ending."""
    return run.goal.pursuit.ending is None


def _has_new_guidance(run: GoalRun, ending: Stop) -> bool:
    """Return True if unread guidance withdraws the ending. It does not withdraw a limit."""
    return ending.reason in UNFINISHED_STOPS and bool(run.state.inbox) and run.state.stop is None


def _final_stop(run: GoalRun, ending: Stop) -> Stop:
    state = run.state
    if state.aborted is not None:
        return Stop("aborted", state.aborted)
    if state.stop is not None and state.stop.reason not in {"completed", ending.reason}:
        has_only_summary_failed = state.stop.reason == "error" and ending.reason != "completed"
        return ending if has_only_summary_failed else state.stop
    if ending.reason == "completed" and not state.output:
        return Stop("error", "no final answer was accepted")
    return ending


async def use_best_effort_answer(run: GoalRun, ending: Stop) -> None:
    """Use the findings of the steps if there is no final answer and the gate allows them."""
    if run.state.output or are_answers_in_question(run.setup):
        return
    text = best_effort_answer(run.goal, ending)
    if text and await gate.is_text_allowed(run, text):
        run.change_state(AgentState.with_task, output=text)


MAX_ATTEMPTS = 5
ATTEMPT_S = 40.0
HEARTBEAT_TIMEOUT_S = 10.0
"""Seconds without a heartbeat, after which another worker repeats an attempt."""

DELIVERY_TIMEOUT_S = 180.0
"""Seconds for all attempts of a delivery. The result waits for them."""

ABORTED_DELIVERY_TIMEOUT_S = 20.0

MAX_RETRY_INTERVAL_S = 30.0
"""Seconds between two attempts if the failure sets no delay, because the worker died or the attempt took too long."""

CUT_SHORT_TEXT = "the goal was aborted while it was delivered"


async def deliver_answer(run: GoalRun, ended: GoalResult) -> GoalResult:
    """Return the result with the outcomes of its deliveries. An abort meanwhile cuts them short."""
    channels = endings.chosen_channels(run.goal, is_in_vain=not has_done_step(ended))
    if not channels:
        return _with_deliveries(run, ended, endings.undelivered_without_setup(run.goal))
    limit_s = DELIVERY_TIMEOUT_S if run.state.aborted is None else ABORTED_DELIVERY_TIMEOUT_S
    tasks = [asyncio.create_task(_deliver_to_channel(run, ended, channel, limit_s)) for channel in channels]
    await run.settle_tasks(tasks, run.watch_for_abort())
    return _with_deliveries(run, ended, tuple(map(_delivery_outcome, tasks, channels)))


def _with_deliveries(run: GoalRun, ended: GoalResult, delivered: tuple[Delivered, ...]) -> GoalResult:
    if not delivered:
        return ended
    for each in delivered:
        run.change_goal(endings.with_delivery, each)
    if failed := sum(each.status == "failed" for each in delivered):
        show_dead_letters(run, failed)
    return with_all_keys(ended.with_deliveries(delivered))


def _delivery_outcome(task: asyncio.Task[Delivered], channel: Channel) -> Delivered:
    if task.done() and not task.cancelled():
        return task.result()
    return Delivered(name=channel.name, kind=channel.kind, status="failed", error=CUT_SHORT_TEXT)


async def _deliver_to_channel(run: GoalRun, ended: GoalResult, channel: Channel, limit_s: float) -> Delivered:
    try:
        attempts = await run.wait_for_event(
            workflow.execute_activity(
                DELIVER,
                endings.delivery_request(run.goal, ended, channel, workflow.info().workflow_id),
                result_type=int,
                activity_id=f"deliver-{channel.name}",
                start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
                schedule_to_close_timeout=timedelta(seconds=limit_s),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
                retry_policy=RetryPolicy(
                    maximum_attempts=MAX_ATTEMPTS, maximum_interval=timedelta(seconds=MAX_RETRY_INTERVAL_S)
                ),
                summary=f"{channel.kind} {channel.name}",
            )
        )
    except ActivityError as error:
        return _failed_delivery(channel, error)
    return Delivered(name=channel.name, kind=channel.kind, status="delivered", attempts=attempts)


def _failed_delivery(channel: Channel, error: ActivityError) -> Delivered:
    cause = root_cause(error)
    attempts = next((detail for detail in getattr(cause, "details", ()) if type(detail) is int), 0)
    return Delivered(
        name=channel.name,
        kind=channel.kind,
        status="failed",
        error=CUT_SHORT_TEXT if is_cancelled_exception(error) else failure_text(error),
        attempts=attempts,
    )
