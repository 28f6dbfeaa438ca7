"""Only a delegate that is paused by a person stops the clock of its parent."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import with_pause, with_resume
from orga.workflows.decisions.tool_calls.delegation import (
    is_paused_by_people,
    with_delegate_paused,
    with_waiting_delegate,
    without_delegate,
)
from orga.workflows.types.control import Clock
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.delegation import Child
from tests.support.values.core import a_state
from tests.support.values.strategies import LAW

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = (Child(workflow_id=f"run.1.{n}", agent="writer", task="write") for n in range(2))


def delegating() -> AgentState:
    return with_waiting_delegate(with_waiting_delegate(a_state(clock=Clock(started_at=START)), ONE), TWO)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_the_clock_stops_until_the_last_delegate_continues() -> None:
    state = with_delegate_paused(delegating(), (ONE.workflow_id, True), at(10))
    state = with_delegate_paused(state, (TWO.workflow_id, True), at(20))
    state = with_delegate_paused(state, (ONE.workflow_id, False), at(500))
    assert (is_paused_by_people(state), state.clock.elapsed_seconds(at(900))) == (True, 10)
    state = with_delegate_paused(state, (TWO.workflow_id, False), at(1_000))
    assert (is_paused_by_people(state), state.clock.elapsed_seconds(at(1_005))) == (False, 15)


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param((), id="nothing"),
        pytest.param((ONE.workflow_id,), id="no state"),
        pytest.param((ONE.workflow_id, "yes"), id="no boolean"),
        pytest.param((ONE.workflow_id, 1), id="a number"),
        pytest.param((ONE.workflow_id, True, True), id="too much"),
        pytest.param(("run.9.9", True), id="not a delegate"),
        pytest.param((None, True), id="nobody"),
        pytest.param(({"a": [1]}, True), id="an object"),
    ],
)
def test_an_invalid_signal_of_a_delegate_changes_nothing(expected: tuple[object, ...]) -> None:
    assert with_delegate_paused(delegating(), expected, at(1)) == delegating()


@LAW
@given(st.lists(st.sampled_from(["one", "one on", "two", "two on", "pause", "resume", "one ends"]), max_size=12))
def test_only_seconds_without_any_pause_count(happenings: list[str]) -> None:
    """The expected value is computed second by second."""
    state, counted, now = delegating(), 0, 0
    holders: set[str] = set()
    gone = False
    for happening in happenings:
        who, _, what = happening.partition(" ")
        if who in {"one", "two"} and what != "ends":
            child = ONE if who == "one" else TWO
            state = with_delegate_paused(state, (child.workflow_id, what != "on"), at(now))
            if what == "on":
                holders.discard(who)
            elif not (who == "one" and gone):
                holders.add(who)
        elif what == "ends":
            state, gone = (
                with_delegate_paused(
                    without_delegate(state, ONE.workflow_id), (TWO.workflow_id, "two" in holders), at(now)
                ),
                True,
            )
            holders.discard("one")
        else:
            state = (with_pause if who == "pause" else with_resume)(state, at(now))
            (holders.add if who == "pause" else holders.discard)("pause")
        now += 1
        counted += not holders
    assert state.clock.elapsed_seconds(at(now)) == counted
