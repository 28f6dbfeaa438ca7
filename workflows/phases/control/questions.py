"""Asking people: a question is asked, waited for as long as it takes outside the run's clock, and closed on every path.

Who asks makes the question, and acts
by what it comes back with.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from orga.workflows.decisions.control import questions
from orga.workflows.phases.control import pace
from orga.workflows.phases.control.pace import show_closed, show_details
from orga.workflows.phases.control.run import ControlledRun, Interrupted
from orga.workflows.types.control import Control
from orga.workflows.types.questions import Question, QuestionKind

S = TypeVar("S", bound=Control)

SHORTEST_S = 0.001
"""Of a timer: one of no time at all is none."""


def never() -> bool:
    """Return False: nothing but its decision settles the question."""
    return False


async def ask(
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
    run.change(questions.asked, question, run.now)
    _show(run)
    try:
        await _until_settled(run, question.question_id, is_moot, may_roll_over=may_roll_over)
    except asyncio.CancelledError:  # what waits was given up; an open question would hold the clock
        _close(run, question)
        raise
    decided = questions.question_named(run.state, question.question_id) or question
    _close(run, decided)
    if decided.is_open and not is_moot():
        raise Interrupted
    return decided


async def _until_settled(
    run: ControlledRun[S], question_id: str, is_moot: Callable[[], bool], *, may_roll_over: bool
) -> None:
    """Wait for the decision. What expires is told by the timer alone, which runs from where the run's clock stood."""

    def is_settled() -> bool:
        return not questions.is_open(run.state, question_id) or is_moot() or run.is_interrupted()

    while not is_settled():
        expiry = questions.next_expiry(run.state, question_id)
        left = None if expiry is None else max((expiry - run.now).total_seconds(), SHORTEST_S)
        try:
            await run.wait_until(is_settled, may_roll_over=may_roll_over, timeout_s=left)
        except TimeoutError:
            run.tick()
            if expiry is not None:
                run.change(questions.with_expired, expiry, run.now)


def withdraw(run: ControlledRun[S], kind: QuestionKind, asked_on: str = "") -> None:
    """Close what the run before this one had asked and this one does not: left open, it would hold the clock.

    To be called where no other question of that kind is open.
    """
    for question in run.state.questions:
        if question.kind == kind and question.question_id != asked_on:
            _close(run, question)


def _close(run: ControlledRun[Any], question: Question) -> None:
    run.change(questions.closed, question.question_id, run.now)
    show_closed(question)
    _show(run)


def _show(run: ControlledRun[Any]) -> None:
    show_details(run)
    pace.show_waiting(run)
