"""Signals are recorded whatever they contain, handled in order, and never lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.control.interventions import (
    MAX_IDENTIFIED,
    MAX_INBOX_BYTES,
    MAX_INBOX_ITEMS,
    MAX_KEPT_IDS,
    MAX_KEPT_PAUSES,
    MAX_SIGNAL_BYTES,
    MIN_SIGNAL_BYTES,
    intervention,
    signal_argument,
    signal_text,
    with_abort,
    with_guidance,
    with_intervention_id,
    with_pause,
    with_pauses_applied,
    with_rest_refused,
    with_resume,
    with_sent_abort,
)
from orga.workflows.decisions.conversation import news_bytes_left, reference_and_seen
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
        pytest.param(("a\x00\ud800",), "a\ufffd\ufffd", id="characters that cannot be stored"),
    ],
)
def test_a_signal_accepts_any_arguments(arguments: tuple[Any, ...], expected: str) -> None:
    """A handler that refuses would lose the signal or block the run."""
    assert signal_text(arguments) == expected


def test_a_long_signal_is_cut_with_a_mark() -> None:
    text = signal_text(("é" * MAX_SIGNAL_BYTES,))
    assert len(text.encode()) <= MAX_SIGNAL_BYTES
    assert text.endswith("signals are cut; put documents into files]")


def test_a_full_inbox_keeps_one_line_of_each_further_signal() -> None:
    """All waiting signals are carried in one payload. A refusal would go unnoticed by the sender."""
    state = guided(a_state(), *["x" * MAX_SIGNAL_BYTES] * 20)
    sizes = [len(item.text) for item in state.inbox]
    assert sizes == [MAX_SIGNAL_BYTES] * 2 + [MIN_SIGNAL_BYTES] * 18
    assert sum(sizes) <= MAX_INBOX_BYTES + 18 * MIN_SIGNAL_BYTES


def test_signals_beyond_the_limit_are_counted_and_reported_to_the_model() -> None:
    """A wait of days may collect more signals than a payload can contain."""
    state = guided(a_state(), *["note"] * (MAX_INBOX_ITEMS + 100))
    assert (len(state.inbox), state.unheard) == (MAX_INBOX_ITEMS, 100)
    while state.inbox:
        state = with_inbox_drained(state)
    reported = [m.text for m in state.conversation.messages[1:]]
    assert len(reported) == MAX_INBOX_ITEMS + 1
    assert "100 more messages" in reported[-1]
    assert with_inbox_drained(state) is state


@LAW
@given(st.lists(st.tuples(st.sampled_from(["steer", "add_context"]), any_text), max_size=8))
def test_guidance_is_delivered_in_order_and_never_lost(sent: list[tuple[Any, str]]) -> None:
    state = a_state()
    for kind, text in sent:
        state = with_guidance(state, Intervention(kind=kind, text=signal_text((text,))))
    after = with_inbox_drained(state)
    reported = after.conversation.messages[1:]
    assert after.inbox == ()
    assert all(m.text.endswith(signal_text((text,))) for m, (_, text) in zip(reported, sent, strict=True))
    assert [m.pinned for m in reported] == [kind == "add_context" for kind, _ in sent]
    assert {m.role for m in reported} <= {"user"}


def test_braces_in_guidance_are_plain_text() -> None:
    assert with_inbox_drained(guided(a_state(), "{0} {x} {")).conversation.messages[-1].text.endswith("{0} {x} {")


def test_guidance_beyond_the_budget_waits_for_the_next_call() -> None:
    """An activity input with all of it would be refused again and again."""
    texts = [f"{number:04}" + "x" * 996 for number in range(300)]
    state, reported, steps = a_state(inbox=tuple(Intervention(kind="steer", text=text) for text in texts)), 1, 0
    while state.inbox:
        state = seen(with_inbox_drained(state))
        new = state.conversation.messages[reported:]
        assert 0 < sum(len(m.text) for m in new) <= news_bytes_left(state) // 2
        reported, steps = reported + len(new), steps + 1
    assert [m.text[-1_000:] for m in state.conversation.messages[1:]] == texts
    assert steps == 6


def seen(state: AgentState) -> AgentState:
    return state.model_copy(update={"conversation": reference_and_seen(state.conversation)[1]})


def test_guidance_that_exceeds_the_budget_is_delivered_alone() -> None:
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
        pytest.param(["first", "second"], "first", id="the first reason is kept"),
    ],
)
def test_an_abort_keeps_its_first_reason(reasons: list[str], expected: str) -> None:
    state = a_state()
    for why in reasons:
        state = with_abort(state, why)
    assert state.aborted == expected


SENT = {"id": "web-1", "by": "ada", "text": "use the new list"}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        pytest.param(SENT, ("use the new list", "web-1", "ada"), id="all of it"),
        pytest.param({"id": "1", "text": "go"}, ("go", "1", ""), id="no name"),
        pytest.param({"by": "ada", "text": "go"}, ("go", "", "ada"), id="no id"),
        pytest.param(
            {"id": "1", "by": " a\n\u202eb ", "text": "go"},
            ("go", "1", "a \\u202eb"),
            id="a name with unusual characters",
        ),
        pytest.param({"id": "1", "text": {"a": 1}}, ('{"a":1}', "1", ""), id="a text that is no text"),
        pytest.param({"text": "go"}, ('{"text":"go"}', "", ""), id="no sender"),
        pytest.param({**SENT, "more": 1}, (None, "", ""), id="another key"),
        pytest.param({"id": "a b", "text": "go"}, (None, "", ""), id="an id with a space"),
        pytest.param({"id": "x" * 65, "text": "go"}, (None, "", ""), id="a long id"),
        pytest.param({"id": 5, "text": "go"}, (None, "", ""), id="an id that is no text"),
        pytest.param({"id": "", "text": "go"}, (None, "", ""), id="an empty id"),
        pytest.param([SENT], (None, "", ""), id="an object in a list"),
    ],
)
def test_an_object_identifies_the_sender_and_other_json_is_text(
    argument: Any, expected: tuple[str | None, str, str]
) -> None:
    sent = intervention("steer", (argument,))
    text, *who = expected
    assert (sent.text, sent.id, sent.by) == (signal_text((argument,)) if text is None else text, *who)
    assert intervention("steer", (signal_argument(sent),)) == sent, "the form in which a delegate gets it"


def noted(state: AgentState) -> list[tuple[str, str, str]]:
    """Return event, kind and id of each note about an intervention."""
    return [(note.event, note.data["kind"], note.data["id"]) for note in state.notes]


def sent(kind: Any, number: int = 1) -> Intervention:
    return Intervention(kind=kind, text="go", id=f"web-{number}", by="ada")


def test_guidance_is_applied_when_the_model_gets_it() -> None:
    state = with_guidance(
        with_guidance(a_state(doing="reasoning", iteration=0), sent("steer", 1)), sent("add_context", 2)
    )
    assert state.notes == ()
    state = with_inbox_drained(state)
    assert noted(state) == [("InterventionApplied", "steer", "web-1"), ("InterventionApplied", "add_context", "web-2")]
    applied = {"kind": "steer", "id": "web-1", "by": "ada", "phase": "reasoning", "iteration": 1}
    assert state.notes[0].data == applied


def test_a_pause_is_applied_once_it_stops_the_run() -> None:
    state = with_pause(a_state(), at(1), sent("pause"))
    assert state.notes == ()
    held = with_pauses_applied(state)
    assert noted(held) == [("InterventionApplied", "pause", "web-1")]
    assert noted(with_pause(held, at(2), sent("pause", 2)))[1:] == [("InterventionApplied", "pause", "web-2")]
    assert noted(with_resume(held, at(3), sent("resume", 3)))[1:] == [("InterventionApplied", "resume", "web-3")]


def test_a_pause_without_an_effect_is_applied_when_it_ends() -> None:
    resumed = with_resume(with_pause(a_state(), at(1), sent("pause")), at(2), sent("resume", 2))
    assert noted(resumed) == [("InterventionApplied", "pause", "web-1"), ("InterventionApplied", "resume", "web-2")]
    assert (resumed.paused, resumed.pauses) == (False, ())


def test_an_intervention_without_effect_is_refused() -> None:
    assert noted(with_resume(a_state(), at(1), sent("resume"))) == [("InterventionRefused", "resume", "web-1")]
    aborted = with_sent_abort(with_sent_abort(a_state(), sent("abort")), sent("abort", 2))
    assert noted(aborted) == [("InterventionApplied", "abort", "web-1"), ("InterventionRefused", "abort", "web-2")]
    state = a_state()
    for number in range(MAX_IDENTIFIED):
        state = with_guidance(state, sent("steer", number))
    assert noted(with_guidance(state, sent("steer", 99))) == [("InterventionRefused", "steer", "web-99")]
    assert len(guided(state, "go").inbox) == MAX_IDENTIFIED + 1, "a signal without an id is still accepted"
    full = with_guidance(guided(a_state(), *["note"] * MAX_INBOX_ITEMS), sent("steer"))
    assert noted(full) == [("InterventionRefused", "steer", "web-1")]


def test_waiting_interventions_are_refused_once_when_the_run_ends() -> None:
    state = with_guidance(with_pause(guided(a_state(), "go"), at(1), sent("pause")), sent("steer", 2))
    ended = with_rest_refused(state)
    assert noted(ended) == [("InterventionRefused", "pause", "web-1"), ("InterventionRefused", "steer", "web-2")]
    assert [item.text for item in ended.inbox] == ["go", "go"]
    assert noted(with_inbox_drained(with_rest_refused(ended))) == noted(ended)


def test_interventions_without_an_id_add_no_note() -> None:
    state = with_pauses_applied(with_pause(guided(a_state(), "go"), at(1)))
    assert with_rest_refused(state) is state
    state = with_abort(with_inbox_drained(with_resume(with_resume(state, at(2)), at(3))), "enough")
    assert state.notes == ()


def test_remembered_interventions_are_bounded() -> None:
    state = a_state()
    for number in range(500):
        state = with_pause(with_intervention_id(state, sent("pause", number)), at(1), sent("pause", number))
    assert state.intervention_ids[-1] == sent("pause", 499).key
    assert (len(state.intervention_ids), len(state.pauses)) == (MAX_KEPT_IDS, MAX_KEPT_PAUSES)
