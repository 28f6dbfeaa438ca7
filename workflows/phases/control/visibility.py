"""The visible state of a run (search attributes, current details, spans), and its waits for people.

The run's clock is stopped while a question is open, and each question is closed on every path. The caller makes the
question and acts on the decision. A replay opens the same spans again, but does not end them.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry.trace import Span, Status, StatusCode, get_current_span, get_tracer, use_span
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

from orga.activities.instruments import record_wait
from orga.workflows.decisions.control import questions
from orga.workflows.decisions.control.interventions import with_abort, with_pauses_applied
from orga.workflows.decisions.control.notifications import waiting_lines, waiting_text
from orga.workflows.phases.control.run import ContinueAsNew, ControlledRun, Interrupted
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import Control, StopReason
from orga.workflows.types.names import PHASE, TERMINATION, WAITING, WAITING_SINCE
from orga.workflows.types.questions import Question, QuestionKind, Resolution

EVERY_ITERATIONS = 10
"""Iterations between two writes of the progress. Each write is an event, and histories should stay small."""

AnyRun = ControlledRun[Any]


def upsert_attributes(run: AnyRun, *updates: SearchAttributeUpdate[Any]) -> None:
    if run.state.terms.search_attributes:
        workflow.upsert_search_attributes(list(updates))  # pyright: ignore[reportUnknownMemberType]


def show_progress(run: AnyRun) -> None:
    if run.state.iteration % EVERY_ITERATIONS == 0:
        upsert_attributes(run, *run.progress_attributes())


def show_phase(run: AnyRun) -> None:
    """Write the phase at once. This is for phases that may last, such as a pause."""
    upsert_attributes(run, PHASE.value_set(run.state.phase))


def show_progress_now(run: AnyRun) -> None:
    upsert_attributes(run, *run.progress_attributes())


def show_waiting(run: AnyRun) -> None:
    """Write the kind and the time of the oldest open question, or remove them, together with the progress."""
    oldest = next((question for question in run.state.questions if question.is_open), None)
    if oldest is None:
        waiting = (WAITING.value_unset(), WAITING_SINCE.value_unset())
    else:
        waiting = (WAITING.value_set(oldest.kind), WAITING_SINCE.value_set(oldest.since))
    upsert_attributes(run, *waiting, *run.progress_attributes())


def show_end(run: AnyRun, reason: StopReason) -> None:
    upsert_attributes(run, *run.progress_attributes(), TERMINATION.value_set(reason))


def show_reopened(run: AnyRun) -> None:
    upsert_attributes(run, PHASE.value_set(run.state.phase), TERMINATION.value_unset())


def show_details(run: AnyRun) -> None:
    workflow.set_current_details(run.details(waiting_lines(run.state, workflow.info().workflow_id)))


def enter_phase(run: AnyRun, doing: str) -> None:
    run.state = run.state.with_control(doing=doing)
    show_details(run)


def never() -> bool:
    """Return False: no other condition ends the wait."""
    return False


async def wait_if_paused(
    run: AnyRun, *, may_continue_as_new: bool = False, is_over: Callable[[], bool] = never
) -> None:
    """Wait while paused. An abort or `is_over` ends the wait. If an abort is in doubt, wait for its confirmation."""
    if run.doubts:
        await workflow.wait_condition(lambda: not run.doubts)
    if not run.state.paused:
        return
    _set_standing(run, True)
    try:
        await run.wait_until(
            lambda: not run.state.paused or run.is_interrupted() or is_over(), may_continue_as_new=may_continue_as_new
        )
    except ContinueAsNew:
        run.state = run.state.with_control(is_standing=False)
        raise
    _set_standing(run, False)


def _set_standing(run: AnyRun, is_standing: bool) -> None:
    if is_standing:
        run.change_state(with_pauses_applied)
    else:
        run.state = run.state.with_control(is_standing=False)
    show_details(run)
    show_phase(run)


async def pause_checkpoint(run: AnyRun, *, may_continue_as_new: bool = False) -> None:
    """Wait while paused. Raise Interrupted if the run has to end."""
    await wait_if_paused(run, may_continue_as_new=may_continue_as_new)
    run.raise_if_interrupted()


def show_closed(question: Question) -> None:
    """Record a question's wait as a span of its own. A replay makes the span too, but does not end it."""
    if get_current_span().is_recording():
        tracer = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL)
        since = int(question.since.timestamp() * 1e9)
        tracer.start_span(f"wait {question.kind}", attributes={names.WAIT_KIND: question.kind}, start_time=since).end()
    if not workflow.unsafe.is_replaying():
        record_wait(question.kind, question.since)


@contextmanager
def phase_span(phase: str, iteration: int) -> Generator[None]:
    """Record a phase as a span, if the run has a span: only orga's own tracer provider opens it, safely in replays."""
    if not get_current_span().is_recording():
        yield
        return
    with open_span(phase, {names.ITERATION: iteration}):
        yield


@contextmanager
def open_span(name: str, attributes: Mapping[str, AttributeValue]) -> Generator[Span]:
    """Open a span in workflow code and make it current. An exception is recorded by its type, never with its text."""
    span = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL).start_span(name, attributes=attributes)
    with use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            # Any other exception only fails the workflow task. The attempt that succeeds ends its own span.
            if workflow.is_failure_exception(error):
                kind = error.type if isinstance(error, ApplicationError) else None
                span.set_attribute(names.ERROR, kind or type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                span.end()
            raise
        except BaseException:
            span.end()
            raise
    span.end()


S = TypeVar("S", bound=Control)

MIN_TIMER_S = 0.001
"""Seconds of the shortest timer. With 0 s there would be no timer."""


async def ask_people(
    run: ControlledRun[S],
    question: Question,
    *,
    is_moot: Callable[[], bool] = never,
    may_continue_as_new: bool = False,
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
    run: ControlledRun[S],
    question: Question,
    *,
    is_moot: Callable[[], bool] = never,
    may_continue_as_new: bool = False,
) -> Resolution:
    """Ask people a question with a free answer, and return their decision, which is `skip` if the question is moot.

    If a person aborts the run, raise Interrupted. The rest is as in `ask_people`.
    """
    decided = (await ask_people(run, question, is_moot=is_moot, may_continue_as_new=may_continue_as_new)).resolution
    if decided is None and is_moot():
        return Resolution(escalation_id=question.question_id, choice="skip")
    if decided is None or decided.choice == "abort":
        run.change_state(with_abort, (decided and decided.reason) or "aborted by the operator")
        raise Interrupted
    return decided


async def _wait_for_decision(
    run: ControlledRun[S], question_id: str, is_moot: Callable[[], bool], *, may_continue_as_new: bool
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
                summary=None if question is None else waiting_text(question),
            )
        except TimeoutError:
            run.advance_clock()
            if expiry is not None:
                run.change_state(questions.with_expired_decisions, expiry, run.now)


def withdraw_question(run: ControlledRun[S], kind: QuestionKind, asked_on: str = "") -> None:
    """Close questions of this kind that only the previous segment asked, because they would hold the clock.

    Call this when this segment has no open question of that kind, except the one with the id `asked_on`.
    """
    for question in run.state.questions:
        if question.kind == kind and question.question_id != asked_on:
            close_question(run, question)


def withdraw_all_questions(run: ControlledRun[Any]) -> None:
    for question in run.state.questions:
        close_question(run, question)


def close_question(run: ControlledRun[Any], question: Question) -> None:
    """Close a question. It no longer holds the clock."""
    run.change_state(questions.without_question, question.question_id, run.now)
    show_closed(question)
    _show_questions(run)


def _show_questions(run: ControlledRun[Any]) -> None:
    show_details(run)
    show_waiting(run)
