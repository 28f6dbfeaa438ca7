"""Signals: recorded whatever they hold, taken in in order, never lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import (
    MAX_INBOX_BYTES,
    MAX_INBOX_ITEMS,
    MAX_SIGNAL_BYTES,
    MIN_SIGNAL_BYTES,
    signal_text,
    with_abort,
    with_guidance,
    with_pause,
    with_resume,
)
from orga.workflows.decisions.conversation import news_bytes_left, reference_and_sent
from orga.workflows.decisions.observe import with_inbox_drained
from orga.workflows.types.control import Intervention
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.state import AgentState
from tests.support.values.core import a_setup, a_state, at
from tests.support.values.strategies import LAW, any_text


def guided(state: AgentState, *texts: str) -> AgentState:
    for text in texts:
        state = with_guidance(state, Intervention(kind="steer", text=text))
    return state


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(("look at main.py",), "look at main.py", id="text"),
        pytest.param((), "", id="no argument"),
        pytest.param((None,), "", id="null"),
        pytest.param((5,), "5", id="a number"),
        pytest.param((False,), "false", id="false is not nothing"),
        pytest.param(({"a": 1},), '{"a":1}', id="an object"),
        pytest.param(("one", None, "two"), "one\ntwo", id="several arguments"),
        pytest.param(("a\x00\ud800",), "a\ufffd\ufffd", id="what could not be stored"),
    ],
)
def test_a_signal_takes_any_arguments(arguments: tuple[Any, ...], expected: str) -> None:
    """A handler that refuses would lose the signal, or hang the run."""
    assert signal_text(arguments) == expected


def test_a_long_signal_is_cut_and_says_so() -> None:
    text = signal_text(("é" * MAX_SIGNAL_BYTES,))
    assert len(text.encode()) <= MAX_SIGNAL_BYTES
    assert text.endswith("signals are cut; put documents into files]")


def test_an_inbox_that_is_full_takes_one_line_of_each_further_signal() -> None:
    """All that waits is carried in one payload; a signal is never refused, for its sender would not learn it."""
    state = guided(a_state(), *["x" * MAX_SIGNAL_BYTES] * 20)
    sizes = [len(item.text) for item in state.inbox]
    assert sizes == [MAX_SIGNAL_BYTES] * 2 + [MIN_SIGNAL_BYTES] * 18
    assert sum(sizes) <= MAX_INBOX_BYTES + 18 * MIN_SIGNAL_BYTES


def test_thousands_of_signals_are_counted_and_the_model_is_told() -> None:
    """Days of a wait may bring more than a payload holds."""
    state = guided(a_state(), *["note"] * (MAX_INBOX_ITEMS + 100))
    assert (len(state.inbox), state.unheard) == (MAX_INBOX_ITEMS, 100)
    while state.inbox:
        state = with_inbox_drained(state)
    told = [m.text for m in state.conversation.messages[1:]]
    assert len(told) == MAX_INBOX_ITEMS + 1
    assert "100 more messages" in told[-1]
    assert with_inbox_drained(state) is state


@LAW
@given(st.lists(st.tuples(st.sampled_from(["steer", "add_context"]), any_text), max_size=8))
def test_guidance_is_taken_in_in_order_of_arrival_none_lost(sent: list[tuple[Any, str]]) -> None:
    state = a_state()
    for kind, text in sent:
        state = with_guidance(state, Intervention(kind=kind, text=signal_text((text,))))
    after = with_inbox_drained(state)
    told = after.conversation.messages[1:]
    assert after.inbox == ()
    assert all(m.text.endswith(signal_text((text,))) for m, (_, text) in zip(told, sent, strict=True))
    assert [m.pinned for m in told] == [kind == "add_context" for kind, _ in sent]
    assert {m.role for m in told} <= {"user"}


def test_braces_in_guidance_are_only_text() -> None:
    assert with_inbox_drained(guided(a_state(), "{0} {x} {")).conversation.messages[-1].text.endswith("{0} {x} {")


def test_more_guidance_than_the_budget_has_room_for_waits_for_the_next_call() -> None:
    """An activity input of all of it would be refused, again and again."""
    texts = [f"{number:04}" + "x" * 996 for number in range(300)]
    state, told, steps = a_state(inbox=tuple(Intervention(kind="steer", text=text) for text in texts)), 1, 0
    while state.inbox:
        state = seen(with_inbox_drained(state))
        new = state.conversation.messages[told:]
        assert 0 < sum(len(m.text) for m in new) <= news_bytes_left(state) // 2
        told, steps = told + len(new), steps + 1
    assert [m.text[-1_000:] for m in state.conversation.messages[1:]] == texts
    assert steps == 6


def seen(state: AgentState) -> AgentState:
    return state.model_copy(update={"conversation": reference_and_sent(state.conversation)[1]})


def test_guidance_that_is_too_much_alone_is_taken_in_alone() -> None:
    item = Intervention(kind="steer", text="x" * MAX_SIGNAL_BYTES)
    config = LoopConfig(context_token_budget=500)
    assert len(with_inbox_drained(a_state(setup=a_setup(config=config), inbox=(item, item))).inbox) == 1


def test_an_empty_inbox_changes_nothing() -> None:
    state = a_state()
    assert with_inbox_drained(state) is state


def test_a_second_pause_and_a_second_resume_change_nothing() -> None:
    paused = with_pause(a_state(), at(10))
    assert with_pause(paused, at(20)) is paused
    resumed = with_resume(paused, at(30))
    assert with_resume(resumed, at(40)) is resumed
    assert (resumed.clock.stopped_at, resumed.clock.stopped_s) == (None, 20.0)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        pytest.param(["wrong task"], "wrong task", id="the operator's reason"),
        pytest.param([""], "aborted by the operator", id="no reason"),
        pytest.param(["first", "second"], "first", id="the first reason stays"),
    ],
)
def test_abort(reasons: list[str], expected: str) -> None:
    state = a_state()
    for why in reasons:
        state = with_abort(state, why)
    assert state.aborted == expected
