"""Where a run stands, for whoever looks: search attributes, current details, spans; and where it stands still.

A question is asked, waited for as long as it takes outside the run's clock, and closed on every path. Who asks makes
the question, and acts by what it comes back with. Spans are opened once, and not ended by a replay.
"""

from __future__ import annotations

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
from orga.workflows.decisions.control.interventions import with_abort
from orga.workflows.decisions.control.notifications import waiting_text
from orga.workflows.phases.control.run import ContinueAsNew, ControlledRun, Interrupted
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.control import Control, StopReason
from orga.workflows.types.names import PHASE, TERMINATION, WAITING, WAITING_SINCE
from orga.workflows.types.questions import Question, QuestionKind, Resolution

EVERY_ITERATIONS = 10
"""Progress is written this often: each upsert is an event, and histories stay as small as those of a bare loop."""

AnyRun = ControlledRun[Any]


def upsert_attributes(run: AnyRun, *updates: SearchAttributeUpdate[Any]) -> None:
    """Write them, where the server knows them."""
    if run.state.terms.search_attributes:
        workflow.upsert_search_attributes(list(updates))  # pyright: ignore[reportUnknownMemberType]


def show_progress(run: AnyRun) -> None:
    """Write how far the run is, at every tenth iteration."""
    if run.state.iteration % EVERY_ITERATIONS == 0:
        upsert_attributes(run, *run.progress())


def show_phase(run: AnyRun) -> None:
    """Write the phase at once: for phases that last (paused)."""
    upsert_attributes(run, PHASE.value_set(run.state.phase))


def show_progress_now(run: AnyRun) -> None:
    """Write how far the run is, now that a part of it has ended."""
    upsert_attributes(run, *run.progress())


def show_waiting(run: AnyRun) -> None:
    """Write what the run waits for a person for, the oldest question and since when or nothing, and how far it is."""
    oldest = next((question for question in run.state.questions if question.is_open), None)
    if oldest is None:
        waiting = (WAITING.value_unset(), WAITING_SINCE.value_unset())
    else:
        waiting = (WAITING.value_set(oldest.kind), WAITING_SINCE.value_set(oldest.since))
    upsert_attributes(run, *waiting, *run.progress())


def show_end(run: AnyRun, reason: StopReason) -> None:
    """Write how the run ended."""
    upsert_attributes(run, *run.progress(), TERMINATION.value_set(reason))


def show_reopened(run: AnyRun) -> None:
    """Write that a run whose end was written goes on after all."""
    upsert_attributes(run, PHASE.value_set(run.state.phase), TERMINATION.value_unset())


def show_details(run: AnyRun) -> None:
    """Show where the run stands in the Temporal UI."""
    workflow.set_current_details(run.details())


def enter_phase(run: AnyRun, doing: str) -> None:
    """Begin with a phase."""
    run.state = run.state.with_control(doing=doing)
    show_details(run)


def never() -> bool:
    """Return False: nothing else ends the wait."""
    return False


async def wait_if_paused(run: AnyRun, *, may_roll_over: bool = False, is_over: Callable[[], bool] = never) -> None:
    """Stand still while paused; an abort goes through, as does what `is_over` says, and one in doubt is waited for."""
    if run.doubts:
        await workflow.wait_condition(lambda: not run.doubts)
    if not run.state.paused:
        return
    _wait_while_paused(run, True)
    try:
        await run.wait_until(
            lambda: not run.state.paused or run.is_interrupted() or is_over(), may_roll_over=may_roll_over
        )
    except ContinueAsNew:
        run.state = run.state.with_control(is_standing=False)
        raise
    _wait_while_paused(run, False)


def _wait_while_paused(run: AnyRun, is_standing: bool) -> None:
    run.state = run.state.with_control(is_standing=is_standing)
    show_details(run)
    show_phase(run)


async def pause_checkpoint(run: AnyRun, *, may_roll_over: bool = False) -> None:
    """Stand still while paused.

    Raises:
        Interrupted: The run is to end.
    """
    await wait_if_paused(run, may_roll_over=may_roll_over)
    run.raise_if_interrupted()


def show_closed(question: Question) -> None:
    """Show a question from its asking to its closing as a span of its own; a replay makes it, too, and ends it not."""
    if get_current_span().is_recording():
        tracer = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL)
        since = int(question.since.timestamp() * 1e9)
        tracer.start_span(f"wait {question.kind}", attributes={names.WAIT_KIND: question.kind}, start_time=since).end()
    if not workflow.unsafe.is_replaying():
        record_wait(question.kind, question.since)


@contextmanager
def phase_span(phase: str, iteration: int) -> Generator[None]:
    """Time a phase, if the run has a span: only orga's own tracer provider, which is safe under replay, opens that."""
    if not get_current_span().is_recording():
        yield
        return
    with open_span(phase, {names.ITERATION: iteration}):
        yield


@contextmanager
def open_span(name: str, attributes: Mapping[str, AttributeValue]) -> Generator[Span]:
    """Open a span in workflow code and make it current. The exception it may leave by is named, never quoted."""
    span = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL).start_span(name, attributes=attributes)
    with use_span(span, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            # Any other exception fails the workflow task only: the attempt that succeeds ends its own span.
            if workflow.is_failure_exception(error):
                span.set_attribute(names.ERROR, _exception_kind(error))
                span.set_status(Status(StatusCode.ERROR))
                span.end()
            raise
        except BaseException:
            span.end()
            raise
    span.end()


def _exception_kind(error: Exception) -> str:
    return (isinstance(error, ApplicationError) and error.type) or type(error).__name__


S = TypeVar("S", bound=Control)

MIN_TIMER_S = 0.001
"""Of a timer: one of no time at all is none."""


async def ask_people(
    run: ControlledRun[S],
    question: Question,
    *,
    is_moot: Callable[[], bool] = never,
    may_roll_over: bool = False,
) -> Question:
    """Ask people, and return the question as they decided it.

    Args:
        run: The run.
        question: One that is open already is asked on: the run before this one had asked it, or a decision of the loop.
        is_moot: Whether nobody needs to decide it any more; it comes back undecided then.
        may_roll_over: Whether the next run could ask it on without doing anything twice.

    Raises:
        Interrupted: The run is ended before it is decided.
        RollOver: The history has grown enough meanwhile; the question stays open.
    """
    run.change(questions.with_question, question, run.now)
    _show_questions(run)
    try:
        await _wait_for_decision(run, question.question_id, is_moot, may_roll_over=may_roll_over)
    except asyncio.CancelledError:  # what waits was given up; an open question would hold the clock
        _close_question(run, question)
        raise
    decided = questions.find_question(run.state, question.question_id) or question
    _close_question(run, decided)
    if decided.is_open and not is_moot():
        raise Interrupted
    return decided


async def ask_for_answer(
    run: ControlledRun[S],
    question: Question,
    *,
    is_moot: Callable[[], bool] = never,
    may_roll_over: bool = False,
) -> Resolution:
    """Ask people what has a free answer, and return what they decided; `skip` where nobody needs to any more.

    Raises:
        Interrupted: The run is ended, before or by that.
        RollOver: As `ask` does.
    """
    decided = (await ask_people(run, question, is_moot=is_moot, may_roll_over=may_roll_over)).resolution
    if decided is None and is_moot():
        return Resolution(escalation_id=question.question_id, choice="skip")
    if decided is None or decided.choice == "abort":
        run.change(with_abort, (decided and decided.reason) or "aborted by the operator")
        raise Interrupted
    return decided


async def _wait_for_decision(
    run: ControlledRun[S], question_id: str, is_moot: Callable[[], bool], *, may_roll_over: bool
) -> None:
    """Wait for the decision. What expires is told by the timer alone, which runs from where the run's clock stood."""

    def is_decided() -> bool:
        return not questions.is_open(run.state, question_id) or is_moot() or run.is_interrupted()

    while not is_decided():
        expiry = questions.next_expiry(run.state, question_id)
        left = None if expiry is None else max((expiry - run.now).total_seconds(), MIN_TIMER_S)
        try:
            await run.wait_until(
                is_decided, may_roll_over=may_roll_over, timeout_s=left, summary=_timer_summary(run.state, question_id)
            )
        except TimeoutError:
            run.tick()
            if expiry is not None:
                run.change(questions.with_expired_decisions, expiry, run.now)


def _timer_summary(state: Control, question_id: str) -> str | None:
    question = questions.find_question(state, question_id)
    return None if question is None else waiting_text(question)


def withdraw_question(run: ControlledRun[S], kind: QuestionKind, asked_on: str = "") -> None:
    """Close what the run before this one had asked and this one does not: left open, it would hold the clock.

    To be called where no other question of that kind is open.
    """
    for question in run.state.questions:
        if question.kind == kind and question.question_id != asked_on:
            _close_question(run, question)


def withdraw_all_questions(run: ControlledRun[Any]) -> None:
    """Close whatever is asked: nobody waits for it any more."""
    for question in run.state.questions:
        _close_question(run, question)


def _close_question(run: ControlledRun[Any], question: Question) -> None:
    run.change(questions.without_question, question.question_id, run.now)
    show_closed(question)
    _show_questions(run)


def _show_questions(run: ControlledRun[Any]) -> None:
    show_details(run)
    show_waiting(run)
