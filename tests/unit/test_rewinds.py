"""A run that was set back goes on as if no time had passed, no ending were decided, and nothing is counted twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import a_state, at
from tests.support.strategies import LAW, json_values
from workflows.decisions.interventions import with_abort, with_pause, with_resume
from workflows.decisions.rewinds import with_rewind
from workflows.types.state import Intervention


def rewind(boundary_s: float, **fields: Any) -> dict[str, Any]:
    return {"to_iteration": 1, "boundary_at": at(boundary_s).isoformat(), **fields}


def test_the_time_since_the_boundary_does_not_count() -> None:
    state = with_rewind(a_state(), rewind(7), at(1_000))
    assert state.clock.elapsed_s(at(1_000)) == 7
    assert state.clock.elapsed_s(at(1_003)) == 10


def test_pauses_before_the_boundary_stay_left_out() -> None:
    paused = with_resume(with_pause(a_state(), at(2)), at(5))
    assert with_rewind(paused, rewind(7), at(100)).clock.elapsed_s(at(100)) == 4


def test_a_pause_that_is_delivered_again_holds_the_run_with_the_time_of_the_boundary() -> None:
    state = with_rewind(with_pause(a_state(), at(100)), rewind(7), at(100))
    assert state.paused
    assert with_resume(state, at(900)).clock.elapsed_s(at(900)) == 7


@LAW
@given(st.lists(st.floats(7, 99), max_size=4))
def test_rewinds_that_are_delivered_again_by_the_last_one_count_no_time(earlier: list[float]) -> None:
    state = a_state()
    for boundary_s in [*earlier, 7]:
        state = with_rewind(state, rewind(boundary_s), at(100))
    assert state.clock.elapsed_s(at(100)) == pytest.approx(7)


def test_a_rewind_long_after_another_counts_its_own_time_only() -> None:
    state = with_rewind(a_state(), rewind(7), at(100))
    assert with_rewind(state, rewind(103), at(500)).clock.elapsed_s(at(500)) == 10


def test_an_ending_that_was_delivered_again_is_taken_back_and_the_guidance_comes_last() -> None:
    state = with_abort(a_state(inbox=(Intervention(kind="steer", text="kept"),)), "enough")
    state = with_rewind(state.model_copy(update={"stop": ("error", "x")}), rewind(0, steer="anew"), at(9))
    assert (state.aborted, state.stop) == (None, None)
    assert [item.text for item in state.inbox] == ["kept", "anew"]


@pytest.mark.parametrize("steer", [None, "", " \n"])
def test_no_guidance_leaves_the_inbox_alone(steer: str | None) -> None:
    assert with_rewind(a_state(), rewind(0, steer=steer), at(9)).inbox == ()


@pytest.mark.parametrize(
    ("boundary_s", "elapsed_s"),
    [pytest.param(-50, 0, id="before the start"), pytest.param(500, 9, id="in the future")],
)
def test_a_boundary_that_cannot_be_gives_no_more_than_the_whole_clock(boundary_s: float, elapsed_s: float) -> None:
    assert with_rewind(a_state(), rewind(boundary_s), at(9)).clock.elapsed_s(at(9)) == elapsed_s


@LAW
@given(json_values)
def test_what_is_no_rewind_changes_nothing(raw: Any) -> None:
    assert with_rewind(a_state(), raw, at(9)) == a_state()


def test_a_time_without_a_zone_is_no_rewind() -> None:
    assert with_rewind(a_state(), rewind(0) | {"boundary_at": "2026-01-01T00:00:00"}, at(9)) == a_state()
