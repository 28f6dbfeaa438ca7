"""Questions of a run: asking people, waiting for their decision, and notifications to people outside.

The run's clock is stopped while a question is open, and each question is closed on every path. The caller makes the
question and acts on the decision. Notifications are sent next to the loop, so no receiver delays the run.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from opentelemetry.trace import get_current_span, get_tracer
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from orga.activities.instruments import record_wait
from orga.workflows.decisions.control import notifications, questions
from orga.workflows.decisions.control.interventions import with_abort
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.run import AnyRun, Interrupted, never
from orga.workflows.phases.control.visibility import show_details, upsert_attributes
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import Stop
from orga.workflows.types.names import NOTIFY, WAITING, WAITING_SINCE
from orga.workflows.types.questions import Notification, Question, QuestionKind, Resolution

MIN_TIMER_S = 0.001
"""Seconds of the shortest timer. With 0 s there would be no timer."""


async def ask_people(
    run: AnyRun, question: Question, *, is_moot: Callable[[], bool] = never, may_continue_as_new: bool = False
) -> Question:
    """Ask people, and return the question with their decision. Raise Interrupted if the run ends before.

    A question that is already open is not asked twice. If `is_moot` becomes true, the question is returned undecided.
    With `may_continue_as_new`, ContinueAsNew may be raised with the question still open, for the next segment.
    """
    run.change_state(questions.with_question, question, run.now)
    _show_questions(run)
    try:
        await _wait_for_decision(run, question.question_id, is_moot, may_continue_as_new=may_continue_as_new)
    except asyncio.CancelledError:  # nobody waits any longer, and an open question would hold the clock
        close_question(run, question)
        raise
    decided = questions.find_question(run.state, question.question_id) or question
    close_question(run, decided)
    if decided.is_open and not is_moot():
        raise Interrupted
    return decided


async def ask_for_answer(
    run: AnyRun, question: Question, *, is_moot: Callable[[], bool] = never, may_continue_as_new: bool = False
) -> Resolution:
    """Ask people a question with a free answer, and return their decision. It is `skip` if the question is moot.

    If a person aborts the run, raise Interrupted. The rest is as in `ask_people`.
    """
    asked = await ask_people(run, question, is_moot=is_moot, may_continue_as_new=may_continue_as_new)
    decision = asked.resolution
    if decision is None:  # `ask_people` returns an undecided question only if it is moot
        return Resolution(escalation_id=question.question_id, choice="skip")
    if decision.choice == "abort":
        run.change_state(with_abort, decision.reason or "aborted by the operator")
        raise Interrupted
    return decision


async def _wait_for_decision(
    run: AnyRun, question_id: str, is_moot: Callable[[], bool], *, may_continue_as_new: bool
) -> None:
    """Wait for the decision. The question expires only when its timer fires."""

    def is_decided() -> bool:
        return not questions.is_open(run.state, question_id) or is_moot() or run.is_interrupted()

    while not is_decided():
        expiry = questions.next_expiry(run.state, question_id)
        left = None if expiry is None else max((expiry - run.now).total_seconds(), MIN_TIMER_S)
        question = questions.find_question(run.state, question_id)
        try:
            await run.wait_until(
                is_decided,
                may_continue_as_new=may_continue_as_new,
                timeout_s=left,
                summary=None if question is None else notifications.waiting_text(question),
            )
        except TimeoutError:
            run.advance_clock()
            if expiry is not None:
                run.change_state(questions.with_expired_decisions, expiry, run.now)


def withdraw_question(run: AnyRun, kind: QuestionKind, asked_on: str = "") -> None:
    """Close questions of this kind that only the previous segment asked, because they would hold the clock.

    Call this when this segment has no open question of that kind, except the one with the id `asked_on`.
    """
    for question in run.state.questions:
        if question.kind == kind and question.question_id != asked_on:
            close_question(run, question)


def withdraw_all_questions(run: AnyRun) -> None:
    for question in run.state.questions:
        close_question(run, question)


def close_question(run: AnyRun, question: Question) -> None:
    """Close a question. It no longer holds the clock."""
    run.change_state(questions.without_question, question.question_id, run.now)
    _measure_wait(question)
    _show_questions(run)


def _show_questions(run: AnyRun) -> None:
    """Write the open questions to the details, and the kind and the time of the oldest to the search attributes."""
    show_details(run)
    oldest = next((question for question in run.state.questions if question.is_open), None)
    if oldest is None:
        waiting = (WAITING.value_unset(), WAITING_SINCE.value_unset())
    else:
        waiting = (WAITING.value_set(oldest.kind), WAITING_SINCE.value_set(oldest.since))
    upsert_attributes(run, *waiting, *run.progress_attributes())


def _measure_wait(question: Question) -> None:
    """Record a question's wait in the metrics and as a span. A replay makes the span too, but does not end it."""
    if get_current_span().is_recording():
        tracer = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL)
        since = int(question.since.timestamp() * 1e9)
        tracer.start_span(f"wait {question.kind}", attributes={names.WAIT_KIND: question.kind}, start_time=since).end()
    if not workflow.unsafe.is_replaying():
        record_wait(question.kind, question.since)


DELIVERY_ATTEMPT_S = 10.0
DELIVERY_TIMEOUT_S = 3_600.0
"""Seconds for all attempts to send a question. After that, people still find the open question in the inbox."""

END_DELIVERY_TIMEOUT_S = 5.0
"""Seconds for all attempts to report the end. It is short because the result waits for it."""

MAX_RETRY_INTERVAL_S = 60.0
"""Seconds between two attempts. The first delay is a second, and each is twice the previous one."""


class QuestionAnnouncer:
    """Sends each question to people outside. When a question closes, its unfinished delivery is cancelled."""

    def __init__(self, run: AnyRun) -> None:
        self._run = run
        self._is_over = False
        self._watch: asyncio.Task[None] | None = None
        self._deliveries: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to watch the questions, if the setup asks for notifications."""
        self._is_over = False
        if self._run.state.terms.notify:
            self._watch = self._run.start_background_task(self._announce_new())

    async def stop(self) -> None:
        """Cancel running deliveries before the run ends or continues as new. The next segment sends them again."""
        self._is_over = True
        if self._watch is not None:
            await asyncio.gather(self._watch, *self._deliveries.values())

    async def _announce_new(self) -> None:
        while not self._is_over:
            self._deliveries = {question_id: task for question_id, task in self._deliveries.items() if not task.done()}
            for question in self._unannounced_questions():
                self._deliveries[question.question_id] = self._run.start_background_task(self._announce(question))
            await workflow.wait_condition(lambda: self._is_over or bool(self._unannounced_questions()))

    def _unannounced_questions(self) -> list[Question]:
        waiting = notifications.unannounced_questions(self._run.state)
        return [question for question in waiting if question.question_id not in self._deliveries]

    async def _announce(self, question: Question) -> None:
        delivery = self._run.start_background_task(_deliver_question(self._run, question))
        await self._run.settle_tasks(
            [delivery], lambda: self._is_over or not questions.is_open(self._run.state, question.question_id)
        )


async def announce_end(run: AnyRun, stop: Stop) -> None:
    """Report the end to people outside, if the setup asks for it. This takes `END_DELIVERY_TIMEOUT_S` at most."""
    if not run.state.is_end_notified:
        return
    info = workflow.info()
    try:
        message = notifications.end_notification(run.state, stop, info.workflow_id, info.run_id)
        await run.wait_for_event(_send_notification(message, "ended", END_DELIVERY_TIMEOUT_S))
    except ActivityError as error:
        run.change_state(notifications.with_notification_failure, "ended", failure_text(error))


async def _deliver_question(run: AnyRun, question: Question) -> None:
    message = notifications.question_notification(run.state, question, workflow.info().workflow_id)
    try:
        await run.wait_for_event(_send_notification(message, question.question_id, DELIVERY_TIMEOUT_S))
    except ActivityError as error:
        if is_cancelled_exception(error):
            return
        run.change_state(notifications.with_notification_failure, question.question_id, failure_text(error))
    run.change_state(notifications.with_announced_question, question.question_id)


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
