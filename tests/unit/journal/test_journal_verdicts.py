"""The journal records calls as dispatched after the last decision of gate, people and critics."""

from typing import Any

import pytest

from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.tool_calls.gate import Verdict
from tests.support.runs.critics import a_critic
from tests.support.values.core import a_setup
from tests.unit.journal.test_journal import ALLOW, acted, called, events, gated, happened, journal, reasoned, start

ASK, DENY = Verdict(decision="approval"), Verdict(decision="deny", reason="no")
DISPATCHED, COLLECTED = "ToolsDispatched", "ObservationsCollected"


def note(event: str, **data: Any) -> Happening:
    return happened("noted", value=[{"event": event, "data": data}])


def place(call: str) -> str:
    return f"1.{call.rpartition('_')[2]}"


def asked(*calls: str, **more: Any) -> list[Happening]:
    return [
        note("ApprovalRequested", kind="call", id=f"id-{call}", call_id=call, place=place(call), **more)
        for call in calls
    ]


def approval(call: str, approved: bool = True) -> Happening:
    return note("ApprovalResolved", kind="call", id=f"id-{call}", place=place(call), approved=approved)


def reviewed(call: str, then: str) -> Happening:
    return note("CritiqueEvaluated", kind="critic", call_id=call, place=place(call), then=then)


def again(call: str, verdict: Verdict = ALLOW) -> Happening:
    """Return a repeated verdict of the gate on one call."""
    return gated(verdict, at=place(call))


def gate_failed(about: str) -> Happening:
    return happened("failed", "gate", key=f"{about}.gate", text="it")


def begun(key: str, name: str = "any") -> Happening:
    return happened("scheduled", name, key=key, value={})


def signal(name: str) -> Happening:
    return happened("signaled", name, value=[])


def prepared(**fields: Any) -> list[Happening]:
    return [happened("finished", "prepare", value=Setup.model_validate({**a_setup().model_dump(), **fields}))]


def values_of(entries: list[JournalEntry], event: str, key: str) -> list[list[str]]:
    """Return the calls in each entry of this kind, with tool and outcome."""
    found = [entry.data[key] for entry in entries if entry.event == event]
    return [[f"{one['call_id']} {one.get('outcome', '')}".strip() for one in each] for each in found]


def dispatched(*happenings: Happening | list[Happening]) -> list[list[str]]:
    return values_of(journal(*happenings), DISPATCHED, "tools")


HELD = [start(), *reasoned(called("look", "pay", "wire"), 1), gated(ALLOW, ASK, ASK), *asked("pay_1", "wire_2")]


@pytest.mark.parametrize(
    ("happenings", "expected"),
    [
        pytest.param([], [], id="nothing while people are asked"),
        pytest.param([approval("pay_1")], [], id="nothing while one approval is open"),
        pytest.param(
            [approval("pay_1"), approval("wire_2"), again("look_0"), again("pay_1")],
            [],
            id="nothing before the last verdict",
        ),
        pytest.param(
            [
                approval("wire_2"),
                approval("pay_1"),
                again("look_0"),
                again("pay_1"),
                again("wire_2", DENY),
            ],
            [["look_0", "pay_1"]],
            id="approved calls are judged in call order after the others",
        ),
        pytest.param(
            [
                approval("pay_1", approved=False),
                approval("wire_2"),
                again("look_0", DENY),
                again("wire_2"),
            ],
            [["wire_2"]],
            id="a call allowed next to them may be denied later",
        ),
        pytest.param(
            [approval("pay_1", approved=False), approval("wire_2", approved=False), again("look_0")],
            [["look_0"]],
            id="two denials",
        ),
        pytest.param(
            [approval("pay_1"), approval("wire_2"), gate_failed("1.0"), again("pay_1"), again("wire_2")],
            [["pay_1", "wire_2"]],
            id="a gate failure denies",
        ),
        pytest.param(
            [
                *[
                    approval("pay_1"),
                    approval("wire_2"),
                    again("look_0"),
                    again("pay_1", ASK),
                    again("wire_2", DENY),
                ],
                *[*asked("pay_1"), approval("pay_1"), again("look_0"), again("pay_1")],
            ],
            [["look_0", "pay_1"]],
            id="a changed policy asks again",
        ),
        pytest.param(
            [
                approval("pay_1"),
                approval("wire_2"),
                again("look_0"),
                again("pay_1"),
                *map(begun, ("1.0", "1.1", "1.2")),
            ],
            [["look_0", "pay_1", "wire_2"]],
            id="at the latest when calls start, in an old history",
        ),
    ],
)
def test_held_calls_are_dispatched_after_the_last_verdict(
    happenings: list[Happening], expected: list[list[str]]
) -> None:
    assert dispatched(HELD, happenings) == expected


def test_every_started_call_has_an_outcome() -> None:
    """This also holds for a history that was recorded by unknown code."""
    late = [
        approval("pay_1"),
        approval("wire_2"),
        begun("1.0"),
        begun("1.1"),
        acted("1.1", "failed", text="gone"),
    ]
    entries = journal(HELD, late, happened("workflow_terminated"))
    assert values_of(entries, COLLECTED, "outcomes") == [["look_0 unfinished", "pay_1 failed", "wire_2 not_run"]]


def test_unapproved_calls_are_not_dispatched_at_the_end() -> None:
    entries = journal(HELD, approval("pay_1"), happened("workflow_terminated"))
    assert events(entries)[-3:] == [DISPATCHED, COLLECTED, "Terminated"]
    assert values_of(entries, DISPATCHED, "tools") == [[]]
    assert values_of(entries, COLLECTED, "outcomes") == [["look_0 not_run"]]


PAUSED = [start(), *reasoned(called("look", "pay"), 1), signal("pause"), gated(ALLOW, ALLOW)]


@pytest.mark.parametrize(
    ("happenings", "expected"),
    [
        pytest.param([], [], id="nothing during the pause"),
        pytest.param([signal("resume"), again("look_0")], [], id="each call is judged again"),
        pytest.param(
            [signal("resume"), again("look_0", DENY), again("pay_1")],
            [["pay_1"]],
            id="a call may be denied after the pause",
        ),
        pytest.param([signal("resume"), begun("1.1")], [["look_0", "pay_1"]], id="at the latest when a call starts"),
    ],
)
def test_calls_before_a_pause_are_judged_again_after_it(happenings: list[Happening], expected: list[list[str]]) -> None:
    assert dispatched(PAUSED, happenings) == expected


def test_a_pause_that_ended_before_the_verdict_has_no_effect() -> None:
    over = [start(), signal("pause"), signal("resume"), *reasoned(called("look"), 1), gated(ALLOW)]
    assert dispatched(over) == [["look_0"]]


LIMITED = prepared(config=LoopConfig(max_tool_calls=1, on_exhausted="ask"))
CRITICS = prepared(critics=[a_critic(tools=("pay",))])


@pytest.mark.parametrize(
    ("setup", "happenings", "expected"),
    [
        pytest.param(LIMITED, [], [], id="nothing before a possible question about the budget"),
        pytest.param(LIMITED, [begun("1.0")], [["look_0", "pay_1", "pay_2"]], id="no question about the budget"),
        pytest.param(
            LIMITED,
            [
                note("ApprovalRequested", kind="budget"),
                *[again("look_0"), again("pay_1", DENY), again("pay_2"), begun("1.0")],
            ],
            [["look_0", "pay_2"]],
            id="each call is judged again after the question",
        ),
        pytest.param(CRITICS, [reviewed("pay_1", "accepted")], [], id="nothing while a review is open"),
        pytest.param(
            CRITICS,
            [reviewed("pay_1", "revise"), reviewed("pay_2", "accepted"), begun("1.2")],
            [["look_0", "pay_2"]],
            id="a critic rejects one",
        ),
        pytest.param(
            CRITICS,
            [reviewed("pay_1", "revise"), reviewed("pay_2", "revise")],
            [["look_0"]],
            id="a critic rejects all that it reviews",
        ),
        pytest.param(
            CRITICS,
            [
                *[*asked("pay_1", critic="q"), approval("pay_1"), reviewed("pay_1", "accepted")],
                *map(again, ("look_0", "pay_1", "pay_2")),
            ],
            [],
            id="a call approved by a person is judged again",
        ),
    ],
)
def test_questioned_calls_are_dispatched_after_the_last_decision(
    setup: list[Happening], happenings: list[Happening], expected: list[list[str]]
) -> None:
    reply = reasoned(called("look", "pay", "pay"), 1)
    assert dispatched(start(), setup, reply, gated(ALLOW, ALLOW, ALLOW), happenings) == expected


@pytest.mark.parametrize(
    ("sign", "expected"),
    [
        pytest.param(begun("1.0.s0"), True, id="a step of a saga"),
        pytest.param(begun("1.0.f0"), True, id="a fallback"),
        pytest.param(acted("1.0"), True, id="the end of a local call"),
        pytest.param(happened("child_started", key="run.1.0", value={}), True, id="a delegate"),
        pytest.param(note("SagaEnded", place="1.0", outcome="not_run"), True, id="the end of a saga"),
        pytest.param(begun("1.0.q1"), False, id="a requeued call"),
        pytest.param(begun("2.0"), False, id="a call of another reply"),
        pytest.param(begun("1.critic.q.0", "critique"), False, id="a review"),
        pytest.param(begun("1.7"), False, id="a place without a call"),
    ],
)
def test_the_start_or_end_of_a_call_marks_the_dispatch(sign: Happening, expected: bool) -> None:
    entries = journal(start(), CRITICS, reasoned(called("pay"), 1), gated(ALLOW), sign)
    assert (DISPATCHED in events(entries)) is expected


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(reasoned(called("pay").model_copy(update={"finish": "length"}), 1), id="cut calls"),
        pytest.param(reasoned(called("pay").model_copy(update={"finish": "refusal"}), 1), id="a refusal"),
        pytest.param(reasoned(Reply(), 1), id="a blank reply"),
        pytest.param([*prepared(output_schema={}), *reasoned(Reply.of("{", finish="length"), 1)], id="cut data"),
        pytest.param(
            [*reasoned(called("pay"), 1), note("ApprovalRequested", kind="budget")], id="a reply at the deadline"
        ),
        pytest.param([*reasoned(called("pay"), 1), gate_failed("1.0")], id="a gate failure"),
    ],
)
def test_a_verdict_on_a_requeued_call_does_not_count_for_a_reply(before: list[Happening]) -> None:
    sent = [gated(ALLOW, at="7.0.q1"), begun("7.0.q1"), acted("7.0.q1")]
    entries = journal(start(), before, sent, happened("workflow_terminated"))
    assert not {DISPATCHED, COLLECTED}.intersection(events(entries))


def test_a_held_answer_dispatches_no_call() -> None:
    answer = journal(start(), reasoned(Reply.of("done"), 1), gated(ASK, at="1"))
    assert events(answer)[-2:] == [DISPATCHED, COLLECTED]
    assert dispatched(start(), reasoned(Reply.of("done"), 1), gated(ASK, at="1"), gated(ALLOW, at="1")) == [[]]
