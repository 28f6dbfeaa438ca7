"""A rewound run continues as if no time had passed and no ending was decided, and counts nothing twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import (
    parse_rewind,
    with_abort,
    with_pause,
    with_resume,
    with_rewind_guidance,
)
from orga.workflows.decisions.control.interventions import with_rewind as taken_in
from orga.workflows.types.control import Intervention, Rewind, Stop
from orga.workflows.types.state import AgentState
from tests.support.values.core import a_state, at
from tests.support.values.strategies import LAW, json_values


def rewind_fields(boundary_s: float, **fields: Any) -> dict[str, Any]:
    return {"to_iteration": 1, "boundary_at": at(boundary_s).isoformat(), **fields}


def rewind(boundary_s: float, **fields: Any) -> Rewind:
    return Rewind.model_validate(rewind_fields(boundary_s, **fields))


def with_rewind(state: AgentState, rewind: Rewind, now: Any, since_s: float = 0) -> AgentState:
    return taken_in(with_rewind_guidance(state, rewind), rewind, at(since_s), now)


def test_the_time_since_the_boundary_does_not_count() -> None:
    state = with_rewind(a_state(), rewind(7), at(1_000))
    assert state.clock.elapsed_seconds(at(1_000)) == 7
    assert state.clock.elapsed_seconds(at(1_003)) == 10


def test_pauses_before_the_boundary_are_excluded() -> None:
    paused = with_resume(with_pause(a_state(), at(2)), at(5))
    assert with_rewind(paused, rewind(7), at(100)).clock.elapsed_seconds(at(100)) == 4


def test_a_redelivered_pause_stops_the_clock_at_the_boundary() -> None:
    state = with_rewind(with_pause(a_state(), at(100)), rewind(7), at(100))
    assert state.paused
    assert with_resume(state, at(900)).clock.elapsed_seconds(at(900)) == 7


def test_a_boundary_before_the_reset_point_returns_no_time() -> None:
    assert with_rewind(a_state(), rewind(2), at(100), since_s=7).clock.elapsed_seconds(at(100)) == 7


def test_a_run_paused_since_before_the_boundary_loses_no_time() -> None:
    paused = with_pause(a_state(), at(5))
    assert with_rewind(paused, rewind(50), at(100), since_s=40).clock.elapsed_seconds(at(100)) == 5


@LAW
@given(st.floats(-1e6, 1e6), st.floats(0, 100), st.floats(0, 100), st.booleans())
def test_no_boundary_moves_the_clock_before_the_start_or_beyond_real_time(
    boundary_s: float, since_s: float, now_s: float, is_paused: bool
) -> None:
    state = with_pause(a_state(), at(since_s)) if is_paused else a_state()
    now = at(since_s + now_s)
    elapsed_s = with_rewind(state, rewind(boundary_s), now, since_s=since_s).clock.elapsed_seconds(now)
    assert since_s - 1e-3 <= elapsed_s <= since_s + now_s + 1e-3


def test_a_second_rewind_counts_only_its_own_time() -> None:
    state = with_rewind(a_state(), rewind(7), at(100))
    assert with_rewind(state, rewind(103), at(500), since_s=100).clock.elapsed_seconds(at(500)) == 10


def test_a_redelivered_ending_is_undone_and_new_guidance_comes_last() -> None:
    state = with_abort(a_state(inbox=(Intervention(kind="steer", text="kept"),)), "enough")
    state = with_rewind(state.model_copy(update={"stop": Stop("error", "x")}), rewind(0, steer="fresh"), at(9))
    assert (state.aborted, state.stop) == (None, None)
    assert [item.text for item in state.inbox] == ["kept", "fresh"]


@pytest.mark.parametrize("steer", [None, "", " \n"])
def test_empty_guidance_leaves_the_inbox_unchanged(steer: str | None) -> None:
    assert with_rewind(a_state(), rewind(0, steer=steer), at(9)).inbox == ()


@pytest.mark.parametrize(
    ("boundary_s", "elapsed_s"),
    [pytest.param(-50, 0, id="before the start"), pytest.param(500, 9, id="in the future")],
)
def test_an_impossible_boundary_changes_at_most_the_whole_clock(boundary_s: float, elapsed_s: float) -> None:
    assert with_rewind(a_state(), rewind(boundary_s), at(9)).clock.elapsed_seconds(at(9)) == elapsed_s


@LAW
@given(json_values)
def test_an_invalid_rewind_is_ignored(raw: Any) -> None:
    assert parse_rewind(raw) is None


def test_a_time_without_a_zone_is_an_invalid_rewind() -> None:
    assert parse_rewind(rewind_fields(0) | {"boundary_at": "2026-01-01T00:00:00"}) is None


def test_a_run_rewound_from_its_end_accepts_decisions_again() -> None:
    state = with_rewind(a_state(stop=Stop("completed"), is_over=True), rewind(7), at(9))
    assert (state.stop, state.is_over, state.phase) == (None, False, "preparing")
