"""The law of the stages: an effect without the required verdicts is found in the journal alone."""

from typing import Any

import pytest

from orga.client.journal.laws import law_faults
from orga.workflows.types.tool_calls.loop_tools import CALL_ENDS
from tests.support.values.journals import Made, a_journal

ACTIONS: list[dict[str, Any]] = [{"tool": "look", "call_id": "a"}, {"tool": "pay", "call_id": "b"}]


def reasoned(*actions: dict[str, Any], iteration: int = 1) -> Made:
    return "ReasoningComplete", iteration, {"actions": list(actions)}


def judged(*decisions: str, at: str = "", again: bool = False) -> Made:
    places = [at] if at else [f"1.{index}" for index in range(len(decisions))]
    calls: dict[str, list[str]] = {"calls": []} if again else {}
    return "PolicyEvaluated", 1, {"places": places, "verdicts": [{"decision": each} for each in decisions], **calls}


def confirmed(place: str, decision: str = "allow") -> Made:
    return judged(decision, at=place, again=True)


def asked(place: str = "1.1", **more: Any) -> Made:
    return "ApprovalRequested", 1, {"kind": "call", "id": f"q{place}", "place": place, **more}


def approval(place: str = "1.1", approved: bool = True) -> Made:
    return "ApprovalResolved", 1, {"kind": "call", "id": f"q{place}", "place": place, "approved": approved}


def reviewed(place: str, then: str) -> Made:
    return "CritiqueEvaluated", 1, {"place": place, "then": then}


def run(*call_ids: str) -> Made:
    return "ToolsDispatched", 1, {"tools": [{"call_id": each} for each in call_ids]}


def collected(*outcomes: tuple[str, str]) -> Made:
    return "ObservationsCollected", 1, {"outcomes": [{"call_id": each, "outcome": how} for each, how in outcomes]}


BUDGET: Made = ("ApprovalRequested", 1, {"kind": "budget", "id": "b"})
DENIED: Made = ("PolicyEvaluated", 1, {"error": "it timed out", "places": ["1.0", "1.1"]})
DELEGATED: Made = ("DelegationStarted", 1, {"workflow_id": "agent-1.1.0", "call_id": "a"})
DECIDED: Made = ("DecisionGrounded", 1, {"place": "1.0", "outcome": {"page": "support"}})
SAGA: Made = ("SagaEnded", 1, {"place": "1.0", "outcome": "ok", "calls": [{"call_id": "a.s0", "outcome": "ok"}]})
ENDED: Made = ("Terminated", 2, {"reason": "completed"})
ANSWER = reasoned({"respond": "done"}, iteration=2)


def stood_in(outcome: str) -> Made:
    return "RecoveryTriggered", 1, {"call_id": "a", "calls": [{"place": "1.0.f0", "outcome": outcome}]}


def an_answer(*decisions: str) -> list[Made]:
    return [ANSWER, *(judged(each, at="2", again=bool(nth)) for nth, each in enumerate(decisions)), ENDED]


HELD = [judged("allow", "approval"), asked()]
APPROVED = [*HELD, approval(), confirmed("1.0"), confirmed("1.1")]

LAWFUL: dict[str, list[Made]] = {
    "a yes": [judged("allow", "allow"), run("a", "b"), collected(("a", "ok"), ("b", "failed"))],
    "a denied call that is not run": [judged("allow", "deny"), run("a"), collected(("a", "ok"))],
    "an approval and then the gate's confirmation": [*APPROVED, run("a", "b")],
    "a person denies": [*HELD, approval(approved=False), confirmed("1.0"), run("a"), collected(("a", "ok"))],
    "a question that the next segment asks again": [*HELD, approval(), *APPROVED, run("a", "b")],
    "an approval that the policy requires again": [
        *[*HELD, approval(), confirmed("1.0"), confirmed("1.1", "approval"), asked()],
        *[approval(), confirmed("1.0"), confirmed("1.1"), run("a", "b")],
    ],
    "a critic accepts": [judged("allow", "allow"), reviewed("1.1", "accepted"), run("a", "b")],
    "a critic rejects a call that is not run": [
        judged("allow", "allow"),
        reviewed("1.1", "revise"),
        run("a"),
        collected(("b", "not_run")),
    ],
    "a critic asks a person, then the gate confirms": [
        *[judged("allow", "allow"), reviewed("1.1", "asked"), asked(critic="tone"), approval()],
        *[reviewed("1.1", "accepted"), confirmed("1.0"), confirmed("1.1"), run("a", "b")],
    ],
    "more budget, then the gate confirms": [
        *[judged("allow", "allow"), BUDGET, confirmed("1.0"), confirmed("1.1"), run("a", "b")]
    ],
    "a question after the calls started": [judged("allow", "allow"), run("a"), BUDGET, collected(("a", "ok"))],
    "a repeated verdict": [judged("allow", "allow"), confirmed("1.0"), run("a", "b")],
    "a retry that is judged again": [
        judged("allow", "allow"),
        run("a"),
        confirmed("1.0", "deny"),
        collected(("a", "ok")),
    ],
    "an allowed fallback": [
        judged("allow", "allow"),
        run("a"),
        judged("allow", at="1.0.f0"),
        stood_in("ok"),
    ],
    "a denied fallback": [judged("allow", "allow"), run("a"), judged("deny", at="1.0.f0"), stood_in("denied")],
    "a saga with judged steps": [
        *[judged("allow", "deny"), run("a"), judged("approval", at="1.0.s0", again=True)],
        *[judged("allow", at="1.0.s0", again=True), SAGA],
    ],
    "a delegate": [judged("allow", "deny"), run("a"), DELEGATED],
    "an answer": an_answer("allow"),
    "an answer that a person approved": [
        *[
            ANSWER,
            judged("approval", at="2"),
            asked("2"),
            approval("2"),
            judged("allow", at="2", again=True),
            ENDED,
        ]
    ],
}

DENIED_YES = "shows 1.1 carried out, which lacks a yes: it was denied"
NO_VERDICT = "shows 1.0 carried out, which lacks a verdict of the gate"
UNCONFIRMED = "carried out, which lacks the gate's confirmation after a pause"

UNLAWFUL: dict[str, tuple[list[Made], str]] = {
    "no verdict": ([run("a")], NO_VERDICT),
    "a verdict that comes too late": ([run("a"), judged("allow", "allow")], NO_VERDICT),
    "a verdict on another place": ([judged("allow", at="1.7"), run("a")], NO_VERDICT),
    "a verdict on another reply": ([judged("allow", at="2.0"), run("a")], NO_VERDICT),
    "a verdict without a place": (
        [("PolicyEvaluated", 1, {"verdicts": [{"decision": "allow"}]}), run("a")],
        NO_VERDICT,
    ),
    "verdicts in another order": ([judged("deny", "allow"), run("a")], DENIED_YES.replace("1.1", "1.0")),
    "a gate that failed": ([DENIED, run("b")], DENIED_YES),
    "an allowed call that is denied later": (
        [judged("allow", "allow"), confirmed("1.1", "deny"), run("b")],
        DENIED_YES,
    ),
    "a denied call that is allowed later": ([judged("allow", "deny"), confirmed("1.1"), run("b")], DENIED_YES),
    "an approval that was never requested": ([judged("allow", "approval"), run("b")], "lacks a person's answer"),
    "an approval that nobody gave": ([*HELD, run("b")], "lacks a person's answer"),
    "a verdict instead of an approval": ([*HELD, confirmed("1.1"), run("b")], "lacks a person's answer"),
    "a verdict against a person's denial": (
        [*HELD, approval(approved=False), confirmed("1.1"), run("b")],
        DENIED_YES,
    ),
    "an approval without the gate's confirmation": (
        [*HELD, approval(), confirmed("1.0"), run("b")],
        "lacks the gate's verdict on what a person approved",
    ),
    "an unconfirmed call next to a held one": (
        [*HELD, approval(), confirmed("1.1"), run("a", "b")],
        f"1.0 {UNCONFIRMED}",
    ),
    "an approval of a call that was not held": (
        [judged("allow", "allow"), asked(), approval()],
        "records 'yes' for 1.1",
    ),
    "a rejected call": ([judged("allow", "allow"), reviewed("1.1", "revise"), run("b")], "a critic turned it down"),
    "a critic that ended the run": ([judged("allow", "allow"), reviewed("1.1", "ended"), run("b")], "it ended the run"),
    "a critic that asks, unanswered": ([judged("allow", "allow"), reviewed("1.1", "asked"), run("b")], "a critic asks"),
    "a critic before the gate": ([reviewed("1.1", "accepted"), judged("allow", "allow")], "records 'accepted' for 1.1"),
    "a critic after the last confirmation": (
        [
            judged("allow", "allow"),
            reviewed("1.1", "accepted"),
            confirmed("1.1"),
            reviewed("1.1", "accepted"),
            run("b"),
        ],
        "records 'accepted' for 1.1",
    ),
    "a critique without a subject": (
        [judged("allow", "allow"), reviewed("", "revise")],
        "records 'revise' for nothing",
    ),
    "an unconfirmed approval that a critic requested": (
        [judged("allow", "allow"), asked(critic="tone"), approval(), reviewed("1.1", "accepted"), run("b")],
        f"1.1 {UNCONFIRMED}",
    ),
    "more budget, unconfirmed": ([judged("allow", "allow"), BUDGET, run("a")], f"1.0 {UNCONFIRMED}"),
    "an outcome of a denied call": ([judged("allow", "deny"), run("a"), collected(("b", "ok"))], DENIED_YES),
    "a call that no reply proposed": ([judged("allow", "allow"), run("z")], "'z', a call of no reply"),
    "a fallback without a verdict": ([judged("allow", "allow"), run("a"), stood_in("ok")], "1.0.f0 carried out"),
    "a saga step without a verdict": ([judged("allow", "deny"), run("a"), SAGA], "1.0.s0 carried out"),
    "a delegate without a verdict": ([DELEGATED], NO_VERDICT),
    "a decision without a verdict": ([DECIDED], NO_VERDICT),
    "an answer that was denied": (an_answer("deny"), "ends with the answer of iteration 2, which lacks a yes"),
    "an answer without a verdict": (an_answer(), "which lacks a verdict of the gate"),
    "an answer that nobody approved": (an_answer("approval", "allow"), "which lacks a person's answer"),
}


def faults(made: list[Made]) -> list[str]:
    return law_faults(a_journal([("Started", 0, {}), reasoned(*ACTIONS), *made]))


@pytest.mark.parametrize("made", [pytest.param(made, id=name) for name, made in LAWFUL.items()])
def test_a_lawful_journal_has_no_fault(made: list[Made]) -> None:
    assert faults(made) == []


@pytest.mark.parametrize(("made", "says"), [pytest.param(*each, id=name) for name, each in UNLAWFUL.items()])
def test_an_unlawful_journal_has_one_fault(made: list[Made], says: str) -> None:
    found = faults(made)
    assert len(found) == 1, found
    assert says in found[0]


def test_each_run_in_a_journal_is_checked_separately() -> None:
    """The calls of a delegate have the same places as those of its parent."""
    own, of_child = [reasoned(*ACTIONS), judged("allow", "deny")], {"run": "agent-1.1.0"}
    child: list[Made] = [(event, 1, {**data, **of_child}) for event, _, data in (reasoned(*ACTIONS), run("b"))]
    assert ["lacks a verdict of the gate" in each for each in law_faults(a_journal([*own, *child]))[1:]] == [True]
    assert law_faults(a_journal([("Started", 0, {}), *own, run("a")])) == []


@pytest.mark.parametrize("event", sorted(CALL_ENDS))
def test_an_end_of_a_call_counts_as_an_effect_even_without_an_activity(event: str) -> None:
    assert "shows 1.0 carried out" in faults([(event, 1, {"place": "1.0"})])[0]


def test_a_damaged_list_item_does_not_hide_the_others() -> None:
    assert (
        "shows 1.0 carried out" in faults([("ToolsDispatched", 1, {"tools": [{"call_id": "a"}, "damaged", None]})])[0]
    )
