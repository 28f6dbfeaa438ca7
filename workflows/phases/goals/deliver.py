"""The delivery of a goal's answer, once its ending is final: to all channels in parallel, each with its own attempts.

A channel that fails does not change the ending. The result and the journal report it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from orga.workflows.decisions.goals import deliveries
from orga.workflows.decisions.goals.endings import has_done_step
from orga.workflows.decisions.result import with_all_keys
from orga.workflows.phases.control.failure_text import failure_text, root_cause
from orga.workflows.phases.goals.run import GoalRun
from orga.workflows.phases.run import show_dead_letters
from orga.workflows.types.goals.deliveries import Channel, Delivered
from orga.workflows.types.goals.result import GoalResult
from orga.workflows.types.names import DELIVER

MAX_ATTEMPTS = 5
ATTEMPT_S = 40.0
HEARTBEAT_TIMEOUT_S = 10.0
"""Seconds until an attempt of a dead worker is repeated."""

DELIVERY_TIMEOUT_S = 180.0
"""Seconds for all attempts, which the result waits for."""

ABORTED_DELIVERY_TIMEOUT_S = 20.0
"""Seconds for a goal that was aborted."""

MAX_RETRY_INTERVAL_S = 30.0
"""Seconds between two attempts, if the failure gave no delay: its worker died, or it ran out of time."""

CUT_SHORT_TEXT = "the goal was aborted while it was delivered"


async def deliver_answer(run: GoalRun, ended: GoalResult) -> GoalResult:
    """Return the result with the outcomes of its deliveries. An abort meanwhile cuts them short."""
    channels = deliveries.chosen_channels(run.goal, is_in_vain=not has_done_step(ended))
    if not channels:
        return _with_deliveries(run, ended, deliveries.undelivered_without_setup(run.goal))
    was_aborted = run.state.aborted is not None
    within_s = ABORTED_DELIVERY_TIMEOUT_S if was_aborted else DELIVERY_TIMEOUT_S
    tasks = [asyncio.create_task(_deliver_to_channel(run, ended, channel, within_s)) for channel in channels]
    await run.settle_tasks(tasks, lambda: run.state.aborted is not None and not was_aborted)
    return _with_deliveries(run, ended, tuple(map(_delivery_outcome, tasks, channels)))


def _with_deliveries(run: GoalRun, ended: GoalResult, delivered: tuple[Delivered, ...]) -> GoalResult:
    if not delivered:
        return ended
    for each in delivered:
        run.change_goal(deliveries.with_delivery, each)
    if failed := sum(each.status == "failed" for each in delivered):
        show_dead_letters(run, failed)
    return with_all_keys(ended.with_deliveries(delivered))


def _delivery_outcome(task: asyncio.Task[Delivered], channel: Channel) -> Delivered:
    is_told = task.done() and not task.cancelled()
    return (
        task.result()
        if is_told
        else Delivered(name=channel.name, kind=channel.kind, status="failed", error=CUT_SHORT_TEXT)
    )


async def _deliver_to_channel(run: GoalRun, ended: GoalResult, channel: Channel, within_s: float) -> Delivered:
    try:
        attempts = await run.wait_for_event(
            workflow.execute_activity(
                DELIVER,
                deliveries.delivery_request(run.goal, ended, channel, workflow.info().workflow_id),
                result_type=int,
                activity_id=f"deliver-{channel.name}",
                start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
                schedule_to_close_timeout=timedelta(seconds=within_s),
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
    counted = [each for each in getattr(cause, "details", ()) if type(each) is int]
    return Delivered(
        name=channel.name,
        kind=channel.kind,
        status="failed",
        error=CUT_SHORT_TEXT if is_cancelled_exception(error) else failure_text(error),
        attempts=counted[0] if counted else 0,
    )
