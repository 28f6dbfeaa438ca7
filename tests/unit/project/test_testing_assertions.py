"""`assert_called` and `assert_denied` count the right calls, and explain a failure."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orga.client.testing.assertions import last_refusal
from orga.testing import assert_called, assert_denied, calls_in, journal_of
from orga.workflows.types.status import JournalEntry

RECORDINGS = Path(__file__).parents[2] / "replay" / "histories"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
PAY: dict[str, Any] = {"tool": "pay", "call_id": "p", "arguments": {"cents": 9, "to": "ada"}}
LOOK: dict[str, Any] = {"tool": "look", "call_id": "l", "arguments": {}}


def journal(*reported: tuple[str, dict[str, Any]], iteration: int = 1) -> list[JournalEntry]:
    return [
        JournalEntry(sequence=n, timestamp=T0, agent="a", iteration=iteration, event=event, data=data)
        for n, (event, data) in enumerate(reported)
    ]


def proposed(*actions: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "ReasoningComplete", {"actions": list(actions)}


def judged(**verdicts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    places = [place.removeprefix("at_").replace("_", ".") for place in verdicts]
    return "PolicyEvaluated", {"places": places, "verdicts": list(verdicts.values())}


def dispatched(*calls: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "ToolsDispatched", {"tools": [{"tool": call["tool"], "call_id": call["call_id"]} for call in calls]}


def collected(**outcomes: str) -> tuple[str, dict[str, Any]]:
    ids = {"pay": "p", "look": "l"}
    return "ObservationsCollected", {
        "outcomes": [{"tool": tool, "call_id": ids[tool], "outcome": outcome} for tool, outcome in outcomes.items()]
    }


ALLOW = {"decision": "allow"}
DENY = {"decision": "deny", "reason": "too much", "policies": ["no-large"]}
HELD = {"decision": "approval", "reason": "ask"}
CALLED = journal(proposed(PAY, LOOK), judged(at_1_0=ALLOW, at_1_1=ALLOW), dispatched(PAY, LOOK))
DENIED = journal(proposed(PAY, LOOK), judged(at_1_0=DENY, at_1_1=ALLOW), dispatched(LOOK))


def test_a_call_that_was_run_is_counted() -> None:
    assert_called(CALLED, "pay")
    assert_called(CALLED, "pay", times=1, arguments={"cents": 9})
    assert_called(CALLED, "fly", times=0)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({"times": 2}, "called 2 times, was called once", id="another number of times"),
        pytest.param({"arguments": {"cents": 8}}, 'with {"cents": 8}, was called 0 times', id="another argument"),
        pytest.param({"arguments": {"euros": None}}, "was called 0 times", id="a missing argument"),
        pytest.param({"times": 0}, "called 0 times, was called once", id="not at all"),
    ],
)
def test_a_failed_assertion_lists_the_actual_calls(wanted: dict[str, Any], expected: str) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_called(CALLED, "pay", **wanted)
    assert expected in str(failure.value)
    assert '1: pay {"cents": 9, "to": "ada"} was called' in str(failure.value)


def test_a_denied_call_is_not_counted_as_called() -> None:
    assert_denied(DENIED, "pay")
    assert_denied(DENIED, "pay", rule="no-large")
    with pytest.raises(AssertionError, match="was denied by no-large: too much"):
        assert_called(DENIED, "pay")


def test_a_denial_by_another_rule_is_explained() -> None:
    with pytest.raises(AssertionError, match=r"(?s)should be denied by other.*was denied by no-large"):
        assert_denied(DENIED, "pay", rule="other")
    with pytest.raises(AssertionError, match=r"(?s)a call of look should be denied.*look \{\} was called"):
        assert_denied(DENIED, "look")


def test_a_journal_without_calls_is_explained() -> None:
    with pytest.raises(AssertionError, match="the model called no tools"):
        assert_called(journal(proposed({"respond": "done"})), "pay")


@pytest.mark.parametrize(
    ("then", "fate"),
    [
        pytest.param([], "held", id="nobody has decided"),
        pytest.param(
            [("ApprovalResolved", {"kind": "call", "approved": False, "place": "1.0"})], "denied", id="rejected"
        ),
        pytest.param([judged(at_1_0=ALLOW), dispatched(PAY)], "called", id="approved, and judged again"),
        pytest.param([("PolicyEvaluated", {"error": "no engine", "places": ["1.0"]})], "denied", id="the gate failed"),
    ],
)
def test_a_held_call_has_this_fate(then: list[tuple[str, dict[str, Any]]], fate: str) -> None:
    found = calls_in(journal(proposed(PAY), judged(at_1_0=HELD), *then))
    assert [call.fate for call in found] == [fate]


@pytest.mark.parametrize(
    ("outcome", "fate"),
    [
        pytest.param("not_run", "not_run", id="never started"),
        pytest.param("failed", "called", id="failed"),
        pytest.param("cancelled", "called", id="stopped while it ran"),
        pytest.param("unfinished", "called", id="unknown outcome"),
    ],
)
def test_a_call_counts_once_it_was_started(outcome: str, fate: str) -> None:
    ended = collected(pay=outcome, look="ok")
    found = calls_in(journal(proposed(PAY, LOOK), judged(at_1_0=ALLOW, at_1_1=ALLOW), dispatched(PAY, LOOK), ended))
    assert [call.fate for call in found] == [fate, "called"]


def test_a_call_that_was_not_run_is_explained() -> None:
    reported = journal(proposed(PAY), judged(at_1_0=ALLOW), dispatched(PAY), collected(pay="not_run"))
    assert_called(reported, "pay", times=0)
    with pytest.raises(AssertionError, match=r"was called 0 times(?s:.)*was not run"):
        assert_called(reported, "pay")


def test_a_rejected_call_that_was_not_run_is_denied() -> None:
    refused = ("ApprovalResolved", {"kind": "call", "approved": False, "place": "1.0"})
    found = calls_in(journal(proposed(PAY), judged(at_1_0=HELD), refused, collected(pay="not_run")))
    assert [call.fate for call in found] == ["denied"]


def test_an_unanswered_question_counts_as_asked() -> None:
    """A run that ends before the answer has no outcome for it."""
    asked = ("QuestionAsked", {"place": "1.0"})
    found = calls_in(journal(proposed(PAY), judged(at_1_0=ALLOW), dispatched(PAY), asked, collected(pay="not_run")))
    assert [call.fate for call in found] == ["called"]


@pytest.mark.parametrize(
    ("recording", "fates"),
    [
        pytest.param("circuit", ["called", "not_run", "called"], id="with an open circuit"),
        pytest.param("step-limit", ["called", "called", "not_run"], id="a stopped step"),
        pytest.param("decided", ["called", "called", "not_run"], id="a decision that was refused"),
        pytest.param("criticised", ["not_run", "called"], id="rejected by a critic"),
    ],
)
async def test_calls_of_recorded_runs_count_as_in_their_journals(recording: str, fates: list[str]) -> None:
    found = calls_in(await journal_of(RECORDINGS / f"{recording}.json"))
    assert [call.fate for call in found] == fates


def test_the_calls_of_a_delegate_are_counted_separately() -> None:
    """Both runs are at the same place of the same iteration."""
    nested = [(event, {"run": "child", **data}) for event, data in (proposed(PAY), judged(at_1_0=DENY))]
    found = calls_in(journal(proposed(PAY), judged(at_1_0=ALLOW), *nested, dispatched(PAY)))
    assert [call.fate for call in found] == ["called", "denied"]


ANSWER: dict[str, Any] = {"respond": "It is done."}
INVALID = {"decision": "invalid", "reason": "$.cents is missing"}


@pytest.mark.parametrize(
    ("wanted_text", "expected"),
    [
        pytest.param(CALLED, "", id="none"),
        pytest.param(DENIED, '1: pay {"cents": 9, "to": "ada"} was denied by no-large: too much', id="a call"),
        pytest.param(
            journal(proposed(PAY, LOOK), judged(at_1_0=ALLOW, at_1_1=INVALID)),
            "1: look {} was invalid: $.cents is missing",
            id="invalid arguments",
        ),
        pytest.param(
            [*DENIED, *journal(proposed(ANSWER), judged(at_2=INVALID), iteration=2)],
            '2: the answer "It is done." was invalid: $.cents is missing',
            id="an answer after it",
        ),
        pytest.param(
            journal(proposed(PAY), judged(at_1_0=HELD), ("ApprovalResolved", {"place": "1.0", "reason": "no"})),
            '1: pay {"cents": 9, "to": "ada"} was denied: no',
            id="by a person",
        ),
        pytest.param(
            journal(proposed(ANSWER), ("PolicyEvaluated", {"error": "no engine"})),
            '1: the answer "It is done." was denied: no engine',
            id="by a gate that failed",
        ),
        pytest.param(
            journal(("PolicyEvaluated", {"about": "plan", "places": ["plan"], "verdicts": [DENY]})),
            "1: the proposal plan was denied by no-large: too much",
            id="a plan",
        ),
    ],
)
def test_the_last_refused_proposal_is_described(wanted_text: list[JournalEntry], expected: str) -> None:
    assert last_refusal(wanted_text) == expected
