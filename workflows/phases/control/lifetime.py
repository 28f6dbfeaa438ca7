"""From a run's start to its end: resets, what is watched beside the loop, a cancellation, continuing as new.

Ends that no phase looks out for are watched for: a full history, and the deadline, one timer that is started anew when
need be. People outside are told what the run waits for; who cannot be reached holds nothing up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, TypedSearchAttributes
from temporalio.exceptions import ActivityError, is_cancelled_exception

from orga.workflows.decisions.control import interventions, notifications
from orga.workflows.decisions.control.interventions import (
    out_of_time,
    parse_rewind,
    remaining_s,
    with_abort,
    with_end_at_full_history,
    with_rewind,
    with_rewind_guidance,
)
from orga.workflows.decisions.control.questions import is_open
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.run import ControlledRun, workflow_task_clock
from orga.workflows.types.control import Control, Rewind, Stop
from orga.workflows.types.names import NOTIFY
from orga.workflows.types.questions import Notification, Question

DELIVERY_ATTEMPT_S = 10.0
DELIVERY_TIMEOUT_S = 3_600.0
"""For all attempts to tell of a question; it waits on, and stands in the inbox."""

END_DELIVERY_TIMEOUT_S = 5.0
"""For all attempts to tell of the end, which the result waits for."""

MAX_RETRY_INTERVAL_S = 60.0
"""Between two attempts; the first pause is a second, and each is twice the one before."""


class QuestionAnnouncer:
    """Tells of each question as it opens; what is not delivered when the question closes is withdrawn."""

    def __init__(self, run: ControlledRun[Any]) -> None:
        self._run = run
        self._is_over = False
        self._watch: asyncio.Task[None] | None = None
        self._telling: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to watch the questions, where the setup asks for it: a run that tells nobody does nothing here."""
        self._is_over = False
        if self._run.state.terms.notify:
            self._watch = self._run.beside(self._announce_new())

    async def stop(self) -> None:
        """Withdraw what is under way, before the run ends or continues as new; the next run tells of it again."""
        self._is_over = True
        if self._watch is not None:
            await asyncio.gather(self._watch, *self._telling.values())

    async def _announce_new(self) -> None:
        while not self._is_over:
            self._telling = {question_id: task for question_id, task in self._telling.items() if not task.done()}
            for question in self._unannounced_questions():
                self._telling[question.question_id] = self._run.beside(self._announce(question))
            await workflow.wait_condition(lambda: self._is_over or bool(self._unannounced_questions()))

    def _unannounced_questions(self) -> list[Question]:
        return [each for each in notifications.unannounced(self._run.state) if each.question_id not in self._telling]

    async def _announce(self, question: Question) -> None:
        delivery = self._run.beside(_deliver_question(self._run, question))
        await self._run.settle([delivery], lambda: self._is_over or not is_open(self._run.state, question.question_id))


async def announce_end(run: ControlledRun[Any], stop: Stop) -> None:
    """Tell of the end, where the setup asks for it, for a short time that is the same whatever the receiver does."""
    if not run.state.is_end_told:
        return
    info = workflow.info()
    try:
        message = notifications.end_notification(run.state, stop, info.workflow_id, info.run_id)
        await run.event(_send_notification(message, "ended", END_DELIVERY_TIMEOUT_S))
    except ActivityError as error:
        run.change(notifications.with_notification_failure, "ended", failure_text(error))


async def _deliver_question(run: ControlledRun[Any], question: Question) -> None:
    message = notifications.question_notification(run.state, question, workflow.info().workflow_id, run.commands)
    try:
        await run.event(_send_notification(message, question.question_id, DELIVERY_TIMEOUT_S))
    except ActivityError as error:
        if is_cancelled_exception(error):
            return
        run.change(notifications.with_notification_failure, question.question_id, failure_text(error))
    run.change(notifications.with_announced_question, question.question_id)


async def _send_notification(message: Notification, about: str, within_s: float) -> None:
    await workflow.execute_activity(
        NOTIFY,
        message,
        activity_id=f"notify-{about}",
        start_to_close_timeout=timedelta(seconds=DELIVERY_ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=within_s),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=MAX_RETRY_INTERVAL_S)),
        summary=f"{message.event} {message.kind or message.reason}",
    )


ABORT_CONFIRMATION_S = 0.001
"""Until an abort that came together with a claim counts after all. The reset is told in the same task, or never."""


class _RewindClaim(NamedTuple):
    """What the signals of one workflow task say of a reset."""

    rewinds: tuple[Rewind, ...]
    """Those of earlier rewinds, which are delivered again; the last is that of the reset itself."""
    task: float
    """The time of the task."""
    since: datetime
    """When the run had its last event before this task."""
    aborted: str | None = None
    """Why the run was to be aborted, by what came in this task before the claim."""


class ResetWatch:
    """Takes the word of `rewound` only in the first task behind a reset; from any other sender it changes nothing.

    The server delivers signals again behind a reset, an abort among them, and the SDK tells of the reset behind all
    signals of that task: so an abort that comes with a claim waits for that word.
    """

    def __init__(self, run: ControlledRun[Any]) -> None:
        """Listen; to be made where the workflow is."""
        self._run = run
        self._claim: _RewindClaim | None = None
        self._aborted_in = 0.0
        self._reset_in = 0.0
        self._task = workflow_task_clock()
        workflow.register_random_seed_callback(self._record_reset)

    def abort(self, why: str) -> None:
        """Take an abort in, and remember when it came."""
        self._run.heard()
        if self._run.state.aborted is None:
            self._aborted_in = self._task()
        self._run.change(interventions.with_abort, why)

    def claimed(self, raw: object) -> None:
        """Take in what a signal says."""
        self._run.heard()
        rewind = parse_rewind(raw)
        if rewind is None:
            return
        claim = _RewindClaim((*self._earlier_rewinds(), rewind), self._task(), self._run.before)
        if self._run.state.aborted is not None and self._aborted_in == claim.task:
            claim = claim._replace(aborted=self._run.state.aborted)
            self._run.state = self._run.state.with_control(aborted=None)
            self._run.beside(self._drop_unconfirmed(claim))
        self._claim = claim
        if self._reset_in == claim.task:
            self._confirm_rewind(claim)

    def _earlier_rewinds(self) -> tuple[Rewind, ...]:
        return self._claim.rewinds if self._claim is not None and self._claim.task == self._task() else ()

    def _record_reset(self, seed: int) -> None:
        """Note the reset. The SDK calls this outside of the loop, and swallows what it raises: it only records."""
        self._reset_in = self._task()
        if self._claim is not None and self._claim.task == self._reset_in:
            self._confirm_rewind(self._claim)

    def _confirm_rewind(self, claim: _RewindClaim) -> None:
        state = self._run.state
        for rewind in claim.rewinds:
            state = with_rewind_guidance(state, rewind)
        self._run.state = with_rewind(state, claim.rewinds[-1], claim.since, self._run.now)

    async def _drop_unconfirmed(self, claim: _RewindClaim) -> None:
        self._run.doubts += 1
        await self._run.event(workflow.sleep(ABORT_CONFIRMATION_S, summary="for word of a rewind"))
        self._run.doubts -= 1
        if self._reset_in != claim.task and claim.aborted is not None:
            self._run.change(interventions.with_abort, claim.aborted)


T = TypeVar("T")

Watch = Callable[[Any], Coroutine[Any, Any, None]]
"""Looks after something of a run until it is cancelled."""


async def run_to_completion(run: ControlledRun[Any], loop: Coroutine[Any, Any, T]) -> T:
    """Return what the loop comes to. Temporal's own cancellation ends a run as an abort does, with a result."""
    task = asyncio.create_task(loop)
    try:
        return await run.until_done(task)
    except asyncio.CancelledError:
        run.tick()
        run.is_cancelled = True
        run.change(with_abort, "cancelled")
        return await run.until_done(task)


def continue_as_new(state: Control) -> NoReturn:
    """End this run, and begin the next of the chain with the state; `@workflow.init` gets it behind the input."""
    # Of the deployment's versions the current one goes on, where there are any.
    current = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    workflow.continue_as_new(
        args=[None, state], initial_versioning_behavior=current, search_attributes=_carried_attributes()
    )


def _carried_attributes() -> TypedSearchAttributes | None:
    """Return the search attributes for the next run where one was unset in this; None lets the server carry all on.

    It carries on what was unset, too, as null: no worker could read such a time, and none begin with that run.
    """
    info = workflow.info()
    is_one_unset = not all(info.search_attributes.values())
    return info.typed_search_attributes if is_one_unset else None


class RunWatches:
    """All that goes on beside the loop: the deadline, the history's length, word to people outside, and `others`."""

    def __init__(self, run: ControlledRun[Any], *others: Watch) -> None:
        self._run = run
        self._announcer = QuestionAnnouncer(run)
        self._watches: tuple[Watch, ...] = (watch_clock, watch_length, *others)
        self._tasks = list[asyncio.Task[None]]()

    def start(self) -> None:
        """Begin; an error in one of them fails the workflow task, see `ControlledRun.until_done`."""
        self._tasks = [self._run.beside(watch(self._run)) for watch in self._watches]
        self._announcer.start()

    def stop(self) -> Awaitable[None]:
        """End them, before the run ends or continues as new."""
        for task in self._tasks:
            task.cancel()
        return self._announcer.stop()


async def watch_clock(run: ControlledRun[Any]) -> None:
    """End the run whenever its time is up, until the task is cancelled."""
    while True:
        await workflow.wait_condition(lambda: run.state.clock.stopped_at is None and not run.is_interrupted())
        if remaining_s(run.state, run.now) <= 0:
            run.change(out_of_time)
            continue
        await _wait_for_clock_change(run, run.state.timeout_s)


async def _wait_for_clock_change(run: ControlledRun[Any], limit_s: float) -> None:
    """Wait until the time is up as it looks now, or something about it changes."""
    left = remaining_s(run.state, run.now)
    try:
        await workflow.wait_condition(
            lambda: run.state.clock.stopped_at is not None or run.state.timeout_s != limit_s,
            timeout=left,
            timeout_summary="time limit",
        )
    except TimeoutError:
        run.tick()


async def watch_length(run: ControlledRun[Any]) -> None:
    """End the run when its history is full, until the task is cancelled."""
    await workflow.wait_condition(lambda: run.is_full)
    run.change(with_end_at_full_history, run.length.events, run.length.size)
