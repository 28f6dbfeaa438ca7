"""The journal matches verdicts, answers and decisions by place, never by order or number."""

from typing import Any

import pytest

from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.tool_calls.gate import Verdict, Verdicts, gate_id, gate_subject, is_one_place
from tests.unit.journal.test_journal import ALLOW, called, gated, happened, journal, reasoned, start
from tests.unit.journal.test_journal_verdicts import (
    ASK,
    DENY,
    HELD,
    PAUSED,
    again,
    approval,
    asked,
    begun,
    dispatched,
    gate_failed,
    note,
    signal,
    values_of,
)

LETTER: dict[str, Any] = {"kind": "call", "id": "letter", "call_id": "pay_1", "place": "7.0.q1"}
TWO = [start(), *reasoned(called("look", "pay"), 1)]


def verdicts(**at: Verdict) -> Happening:
    """Return the gate's result: `_1_0` stands for the place 1.0."""
    places = tuple(name.strip("_").replace("_", ".") for name in at)
    return happened("finished", "gate", value=Verdicts(verdicts=tuple(at.values()), places=places))


@pytest.mark.parametrize(
    ("happenings", "expected"),
    [
        pytest.param([*TWO, verdicts(_1_1=DENY, _1_0=ALLOW)], [["look_0"]], id="verdicts in another order"),
        pytest.param([*TWO, gated(ALLOW, at="7.0.q1")], [], id="a verdict on a letter that is sent again"),
        pytest.param([*TWO, verdicts(_2_0=ALLOW, _2_1=ALLOW)], [], id="verdicts on another reply"),
        pytest.param(
            [*HELD, approval("pay_1"), approval("wire_2"), again("look_0"), again("look_0"), again("pay_1")],
            [],
            id="two verdicts on one call",
        ),
        pytest.param(
            [*HELD, approval("pay_1"), approval("wire_2"), again("wire_2", DENY), again("pay_1"), again("look_0")],
            [["look_0", "pay_1"]],
            id="approved calls judged in another order",
        ),
        pytest.param(
            [*PAUSED, signal("resume"), again("look_0"), again("look_0", DENY)],
            [],
            id="two verdicts on one call after a wait",
        ),
        pytest.param(
            [*PAUSED, signal("resume"), again("look_0"), again("look_0", DENY), again("pay_1")],
            [["pay_1"]],
            id="the last of two verdicts after a wait counts",
        ),
        pytest.param(
            [
                *[*TWO, gated(ALLOW, ASK), note("ApprovalRequested", **LETTER)],
                *[note("ApprovalResolved", approved=True, **LETTER), again("look_0"), gated(ALLOW, at="7.0.q1")],
            ],
            [],
            id="an approval of another call with the same id",
        ),
        pytest.param(
            [*TWO, gated(ALLOW, DENY, DENY), begun("1.0")], [["look_0"]], id="a verdict without a proposed call"
        ),
        pytest.param([*TWO, begun("1.0")], [["look_0"]], id="a call that ran without a verdict"),
    ],
)
def test_calls_are_dispatched_by_the_places_of_their_verdicts(
    happenings: list[Happening], expected: list[list[str]]
) -> None:
    assert dispatched(happenings) == expected


@pytest.mark.parametrize(
    ("happenings", "expected"),
    [
        pytest.param(
            [*PAUSED, gate_failed("ending")],
            [["look_0 not_run", "pay_1 not_run"]],
            id="a gate failure at the ending denies no call",
        ),
        pytest.param(
            [*PAUSED, gate_failed("1.1")],
            [["look_0 not_run"]],
            id="a gate failure denies the judged call",
        ),
        pytest.param(
            [*TWO, gated(DENY, DENY), begun("1.1")],
            [[], ["pay_1 unfinished"]],
            id="a call that ran after a denial is recorded",
        ),
    ],
)
def test_outcomes_are_recorded_by_the_places_of_their_calls(
    happenings: list[Happening], expected: list[list[str]]
) -> None:
    entries = journal(happenings, happened("workflow_terminated"))
    assert values_of(entries, "ObservationsCollected", "outcomes") == expected


def evaluated(entries: list[JournalEntry]) -> list[tuple[list[str], list[str] | None]]:
    found = [entry.data for entry in entries if entry.event == "PolicyEvaluated"]
    return [(data.get("places", []), data.get("calls")) for data in found]


def test_each_evaluation_records_its_places() -> None:
    later = [
        *asked("pay_1"),
        approval("pay_1"),
        again("pay_1"),
        begun("1.0"),
        again("pay_1"),
        gated(ALLOW, at="1.0.f0"),
    ]
    assert evaluated(journal(TWO, verdicts(_1_1=ASK, _1_0=DENY), later, gate_failed("1.0"), gate_failed("1.*"))) == [
        (["1.0", "1.1"], None),
        (["1.1"], ["pay_1"]),
        (["1.1"], ["pay_1"]),
        (["1.0.f0"], []),
        (["1.0"], None),
        (["1.1"], None),
    ]


def test_verdicts_without_places_are_recorded_as_a_gate_failure() -> None:
    entries = journal(
        TWO, happened("finished", "gate", key="1.*.gate", value={"verdicts": [{"decision": "allow"}] * 2})
    )
    [failed] = [entry.data for entry in entries if entry.event == "PolicyEvaluated"]
    assert failed["error"] == "the gate does not say what its verdicts are about"


@pytest.mark.parametrize(
    ("places", "asked_for", "expected"),
    [
        pytest.param(("1.0", "1.1"), ("1.0", "1.1"), (ALLOW, DENY), id="in order"),
        pytest.param(("1.1", "1.0"), ("1.0", "1.1"), (DENY, ALLOW), id="in another order"),
        pytest.param(("1.0", "1.2"), ("1.0", "1.1"), None, id="of another place"),
        pytest.param(("1.0", "1.0"), ("1.0",), None, id="the same place twice"),
        pytest.param(("1.0", "1.1"), ("1.0",), None, id="more places than requested"),
        pytest.param(("1.0",), ("1.0",), None, id="more verdicts than places"),
        pytest.param((), ("1.0", "1.1"), None, id="no places"),
        pytest.param((), ("1.0",), None, id="two verdicts for one request"),
    ],
)
def test_verdicts_are_matched_by_their_places(
    places: tuple[str, ...], asked_for: tuple[str, ...], expected: tuple[Verdict, ...] | None
) -> None:
    assert Verdicts(verdicts=(ALLOW, DENY), places=places).for_places(asked_for) == expected


def test_a_single_verdict_takes_its_place_from_the_activity_id() -> None:
    one = Verdicts(verdicts=(ALLOW,))
    assert (one.for_places(("1.0",)), one.by_place("1.0.gate"), one.by_place("1.*.gate")) == (
        (ALLOW,),
        {"1.0": ALLOW},
        None,
    )
    assert Verdicts(verdicts=(ALLOW,), places=("1.7",)).for_places(("1.0",)) is None
    happenings = [happened("finished", "gate", key=f"{at}.gate", value=one) for at in ("2.0", "1.1")]
    assert evaluated(journal(TWO, happenings)) == [(["2.0"], []), (["1.1"], None)]


@pytest.mark.parametrize(
    ("places", "about", "is_one"),
    [
        pytest.param(("3.0",), "3.0", True, id="a call"),
        pytest.param(("3",), "3", True, id="an answer"),
        pytest.param(("3.0", "3.2"), "3.*", False, id="calls of a reply"),
        pytest.param(("3.0.s0", "3.0.s1"), "3.0.*", False, id="steps of a saga"),
    ],
)
def test_the_id_of_a_gate_activity_contains_its_subject(places: tuple[str, ...], about: str, is_one: bool) -> None:
    assert (gate_subject(gate_id(places)), is_one_place(about)) == (about, is_one)
    assert gate_subject("3.critic.tone.0") == ""
