"""Circuits of a run: every boundary, and a law for any order of calls."""

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from orga.workflows.decisions.tool_calls.dispatch import (
    CircuitOpen,
    with_admitted_call,
    with_circuit_failure,
    with_circuit_released,
    with_circuit_success,
)
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.breakers import Breaker, BreakerOptions
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.values.core import a_spec, a_state, at
from tests.support.values.strategies import LAW

SEARCH = a_spec("search")
OPEN = Breaker(state="open", failures=3, opened_at=at(0))
TRYING = Breaker(state="half_open", failures=3, opened_at=at(0), trying=1)


def guarded(**options: object) -> ToolSpec:
    """Return the tool with these breaker options."""
    return a_spec("search", breaker=BreakerOptions.model_validate(options))


def in_state(breaker: Breaker | None) -> AgentState:
    return a_state(breakers={"search": breaker} if breaker else {})


def failed(times: int, spec: ToolSpec = SEARCH) -> AgentState:
    state = a_state()
    for _ in range(times):
        state = with_circuit_failure(state, spec, at(0))
    return state


def admitted(state: AgentState, spec: ToolSpec, now: datetime) -> tuple[AgentState, str]:
    """Return the state after a call, and the text of its refusal or ""."""
    try:
        return with_admitted_call(state, spec, now), ""
    except CircuitOpen as refusal:
        return state, str(refusal)


def circuit(state: AgentState) -> Breaker:
    return state.breakers.get("search", Breaker())


def notes(state: AgentState) -> list[tuple[str, dict[str, object]]]:
    return [(note.event, note.data) for note in state.notes]


@pytest.mark.parametrize(
    ("threshold", "failures", "expected"),
    [
        pytest.param(3, 2, "closed", id="below the threshold"),
        pytest.param(3, 3, "open", id="at the threshold"),
        pytest.param(3, 4, "open", id="above the threshold"),
        pytest.param(1, 1, "open", id="a threshold of one"),
    ],
)
def test_a_circuit_opens_at_its_threshold(threshold: int, failures: int, expected: str) -> None:
    breaker = circuit(failed(failures, guarded(failure_threshold=threshold)))
    assert (breaker.state, breaker.failures) == (expected, failures)


def test_opening_is_noted_once() -> None:
    assert notes(failed(5)) == [
        ("CircuitOpened", {"tool": "search", "scope": "run", "failures": 3, "recovery_s": 60.0}),
    ]


def test_a_success_in_between_resets_the_count() -> None:
    state = with_circuit_success(failed(2), SEARCH)
    assert (state.breakers, notes(state)) == ({}, [])
    assert circuit(with_circuit_failure(state, SEARCH, at(1))) == Breaker(failures=1)


@pytest.mark.parametrize(
    ("seconds", "half_open_max_calls", "before", "expected"),
    [
        pytest.param(59.999, 1, OPEN, None, id="just before the recovery time"),
        pytest.param(60, 1, OPEN, 1, id="at the recovery time one trial call is allowed"),
        pytest.param(600, 1, OPEN, 1, id="long after it still one trial call"),
        pytest.param(60, 1, TRYING, None, id="the limit of trial calls is reached"),
        pytest.param(60, 2, TRYING, 2, id="below the limit of trial calls"),
        pytest.param(0, 1, Breaker(failures=2), 0, id="closed with failures"),
        pytest.param(0, 1, None, 0, id="never failed"),
    ],
)
def test_calls_are_admitted_by_state_and_time(
    seconds: float, half_open_max_calls: int, before: Breaker | None, expected: int | None
) -> None:
    spec = guarded(half_open_max_calls=half_open_max_calls)
    state, reported = admitted(in_state(before), spec, at(seconds))
    assert (reported == "") is (expected is not None)
    if expected is None:
        assert state == in_state(before)
    else:
        assert circuit(state).trying == expected


@pytest.mark.parametrize(
    ("before", "seconds", "expected"),
    [
        pytest.param(OPEN, 17.2, "search is left alone for 43 s more (failures in a row: 3)", id="open"),
        pytest.param(TRYING, 90, "search is left alone while another call tries it (failures in a row: 3)", id="tried"),
    ],
)
def test_a_refused_call_is_explained_to_the_model(before: Breaker, seconds: float, expected: str) -> None:
    _, reported = admitted(in_state(before), SEARCH, at(seconds))
    remedy = "It was not called. Use another tool, or go on without it."
    assert reported == f"[Circuit open] {expected}. {remedy}"


@pytest.mark.parametrize("before", [pytest.param(OPEN, id="open"), pytest.param(TRYING, id="half-open")])
def test_the_first_success_closes_the_circuit(before: Breaker) -> None:
    state = with_circuit_success(in_state(before), SEARCH)
    assert (state.breakers, notes(state)) == ({}, [("CircuitClosed", {"tool": "search", "scope": "run"})])


def test_a_failed_trial_call_reopens_the_circuit() -> None:
    state = with_circuit_failure(in_state(TRYING), guarded(failure_threshold=9), at(61))
    assert circuit(state) == Breaker(state="open", failures=4, opened_at=at(61))
    assert [event for event, _ in notes(state)] == ["CircuitOpened"]


def test_a_late_failure_does_not_extend_the_time_of_an_open_circuit() -> None:
    state = with_circuit_failure(in_state(OPEN), SEARCH, at(30))
    assert circuit(state) == OPEN.model_copy(update={"failures": 4})
    assert notes(state) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(TRYING, TRYING.model_copy(update={"trying": 0}), id="a permit is returned"),
        pytest.param(TRYING.model_copy(update={"trying": 0}), None, id="no permit is used"),
        pytest.param(OPEN, None, id="open"),
        pytest.param(Breaker(failures=2), None, id="closed"),
    ],
)
def test_a_call_that_does_not_count_returns_its_permit(before: Breaker, after: Breaker | None) -> None:
    state = with_circuit_released(in_state(before), SEARCH)
    assert circuit(state) == (after or before)
    assert notes(state) == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(guarded(enabled=False), id="disabled"),
        pytest.param(guarded(scope="worker"), id="shared by the worker"),
    ],
)
def test_a_circuit_that_is_not_the_runs_is_ignored(spec: ToolSpec) -> None:
    state = failed(9, spec)
    assert (state, admitted(state, spec, at(0))) == (a_state(), (state, ""))
    kept = in_state(OPEN)
    assert (
        admitted(kept, spec, at(0)),
        with_circuit_success(kept, spec),
        with_circuit_released(kept, spec),
    ) == (
        (kept, ""),
        kept,
        kept,
    )


def test_circuits_of_tools_are_independent() -> None:
    assert admitted(failed(3), a_spec("read"), at(0))[1] == ""


@LAW
@given(st.lists(st.sampled_from(["call", "succeed", "fail", "cancel", "wait"]), max_size=40), st.integers(1, 3))
def test_no_permit_is_lost_even_by_a_call_that_outlives_an_opening(events: list[str], tries: int) -> None:
    spec = guarded(failure_threshold=1, recovery_s=10, half_open_max_calls=tries)
    state, now, in_flight = a_state(), 0, 0
    for event in events:
        if event == "wait":
            now += 10
        elif event == "call":
            state, reported = admitted(state, spec, at(now))
            in_flight += reported == ""
        elif in_flight:
            in_flight -= 1
            ends = {"succeed": with_circuit_success(state, spec), "cancel": with_circuit_released(state, spec)}
            state = ends.get(event) or with_circuit_failure(state, spec, at(now))
        assert 0 <= circuit(state).trying <= min(tries, in_flight)
    for _ in range(in_flight):
        state = with_circuit_released(state, spec)
    assert admitted(state, spec, at(now + 10))[1] == ""


class Circuits(RuleBasedStateMachine):
    """Against a model that keeps each call that is on its way.

    As in a run, where no call outlives its iteration, calls end before the clock goes on far enough to try again.
    """

    flights = Bundle("flights")

    @initialize(threshold=st.integers(1, 3), tries=st.integers(1, 3))
    def begin(self, threshold: int, tries: int) -> None:
        self.spec = guarded(failure_threshold=threshold, half_open_max_calls=tries, recovery_s=10)
        self.threshold, self.tries = threshold, tries
        self.state, self.now = a_state(), 0
        self.model, self.row, self.opened = "closed", 0, 0
        self.in_flight: set[int] = set()
        self.number = 0

    @rule(target=flights)
    def call(self) -> int:
        self.state, reported = admitted(self.state, self.spec, at(self.now))
        if self.model == "open" and self.now >= self.opened + 10:
            self.model = "half_open"
        is_admitted = self.model == "closed" or (self.model == "half_open" and len(self.in_flight) < self.tries)
        assert (reported == "") is is_admitted
        self.number += 1
        if is_admitted:
            self.in_flight.add(self.number)
        return self.number

    @rule(flight=consumes(flights))
    def succeed(self, flight: int) -> None:
        if flight in self.in_flight:
            self.in_flight.discard(flight)
            self.state = with_circuit_success(self.state, self.spec)
            self.model, self.row = "closed", 0

    @rule(flight=consumes(flights))
    def fail(self, flight: int) -> None:
        if flight not in self.in_flight:
            return
        self.in_flight.discard(flight)
        self.state = with_circuit_failure(self.state, self.spec, at(self.now))
        self.row += 1
        if self.model == "half_open" or (self.model == "closed" and self.row >= self.threshold):
            self.model, self.opened = "open", self.now

    @rule(flight=consumes(flights))
    def cancel(self, flight: int) -> None:
        if flight in self.in_flight:
            self.in_flight.discard(flight)
            self.state = with_circuit_released(self.state, self.spec)

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        if self.model == "open":
            for _ in self.in_flight:
                self.state = with_circuit_released(self.state, self.spec)
            self.in_flight.clear()
        self.now += seconds

    @invariant()
    def the_circuit_matches_the_model(self) -> None:
        breaker = circuit(self.state)
        assert (breaker.state, breaker.failures) == (self.model, self.row)
        assert breaker.trying == (len(self.in_flight) if self.model == "half_open" else 0)
        assert 0 <= breaker.trying <= self.tries
        assert ("search" in self.state.breakers) is (self.model != "closed" or self.row > 0)


Circuits.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestCircuits = Circuits.TestCase
