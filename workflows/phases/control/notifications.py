"""Notify: people outside are told what the run waits for, beside the loop. Who cannot be reached holds nothing up."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from orga.workflows.decisions.control import notifications
from orga.workflows.decisions.control.questions import is_open
from orga.workflows.phases.control.failures import failure_text
from orga.workflows.phases.control.interrupt import settle
from orga.workflows.phases.control.run import ControlledRun
from orga.workflows.types.control import Stop
from orga.workflows.types.names import NOTIFY
from orga.workflows.types.notifications import Notification
from orga.workflows.types.questions import Question

ATTEMPT_S = 10.0
WITHIN_S = 3_600.0
"""For all attempts to tell of a question; it waits on, and stands in the inbox."""

END_WITHIN_S = 5.0
"""For all attempts to tell of the end, which the result waits for."""

LONGEST_PAUSE_S = 60.0
"""Between two attempts; the first pause is a second, and each is twice the one before."""


class Announcer:
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
            self._watch = self._run.beside(self._watched())

    async def stop(self) -> None:
        """Withdraw what is under way, before the run ends or continues as new; the next run tells of it again."""
        self._is_over = True
        if self._watch is not None:
            await asyncio.gather(self._watch, *self._telling.values())

    async def _watched(self) -> None:
        while not self._is_over:
            self._telling = {question_id: task for question_id, task in self._telling.items() if not task.done()}
            for question in self._new():
                self._telling[question.question_id] = self._run.beside(self._told(question))
            await workflow.wait_condition(lambda: self._is_over or bool(self._new()))

    def _new(self) -> list[Question]:
        return [each for each in notifications.unannounced(self._run.state) if each.question_id not in self._telling]

    async def _told(self, question: Question) -> None:
        delivery = self._run.beside(_delivered(self._run, question))
        await settle([delivery], lambda: self._is_over or not is_open(self._run.state, question.question_id))


async def tell_end(run: ControlledRun[Any], stop: Stop) -> None:
    """Tell of the end, where the setup asks for it, for a short time that is the same whatever the receiver does."""
    if not notifications.is_end_told(run.state):
        return
    info = workflow.info()
    try:
        message = notifications.of_end(run.state, stop, info.workflow_id, info.run_id)
        await run.event(_sent(message, "ended", END_WITHIN_S))
    except ActivityError as error:
        run.change(notifications.with_failure, "ended", failure_text(error))


async def _delivered(run: ControlledRun[Any], question: Question) -> None:
    message = notifications.of_question(run.state, question, workflow.info().workflow_id)
    try:
        await run.event(_sent(message, question.question_id, WITHIN_S))
    except ActivityError as error:
        if is_cancelled_exception(error):
            return
        run.change(notifications.with_failure, question.question_id, failure_text(error))
    run.change(notifications.with_announced, question.question_id)


async def _sent(message: Notification, about: str, within_s: float) -> None:
    await workflow.execute_activity(
        NOTIFY,
        message,
        activity_id=f"notify-{about}",
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=within_s),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=LONGEST_PAUSE_S)),
        summary=f"{message.event} {message.kind or message.reason}",
    )
