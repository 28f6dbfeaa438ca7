"""The law of the gate: a call runs only after an allow verdict on exactly that call, once for each verdict."""

from typing import Any

import pytest

from orga.client.proof.gate_record import AnsweredRequest, GateFact, StartedCall, unlicensed_calls
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import Decision, GateRequest, Purpose, Verdict
from tests.support.values.core import a_call

WRITE = a_call("write", "c1", path="a", mode=1)
READ = a_call("read", "c2")
DELEGATE = a_call("delegate", "c3", agent="helper", task="look")


def judged(
    *proposed: tuple[ToolCall, Decision], at: str = "", by: str = "", purpose: Purpose = "reply", **verdict: Any
) -> AnsweredRequest:
    verdicts = tuple(Verdict(decision=decision, **verdict) for _, decision in proposed)
    calls, places = tuple(call for call, _ in proposed), tuple(f"1.{index}" for index in range(len(proposed)))
    there = (at,) if at else places
    return AnsweredRequest(
        GateRequest(agent="a", iteration=1, calls=calls, places=there, approved_by=by, purpose=purpose), verdicts
    )


def started(call: ToolCall, place: str = "1.0", kind: Any = "activity", **changes: Any) -> StartedCall:
    given: dict[str, Any] = {"name": call.name, "call_id": call.call_id, "arguments": call.arguments} | changes
    return StartedCall(kind, given["name"], place, given["call_id"], given["arguments"])


CHILD = started(DELEGATE, kind="child", call_id="")

LAWFUL: dict[str, list[GateFact]] = {
    "after an allow verdict": [judged((WRITE, "allow")), started(WRITE)],
    "keys in another order": [judged((WRITE, "allow")), started(WRITE, arguments={"mode": 1, "path": "a"})],
    "two calls of one reply": [judged((READ, "allow"), (WRITE, "allow")), started(WRITE, "1.1"), started(READ)],
    "with the arguments set by policy": [
        judged((WRITE, "allow"), arguments={"path": "b"}),
        started(WRITE, arguments={"path": "b"}),
    ],
    "retried by the server": [judged((WRITE, "allow")), started(WRITE), started(WRITE)],
    "retried by a person": [judged((WRITE, "allow")), started(WRITE), started(WRITE, "1.0.r1")],
    "after an approval": [judged((WRITE, "approval")), judged((WRITE, "allow"), by="ann"), started(WRITE)],
    "a dead letter judged again": [
        judged((WRITE, "allow")),
        started(WRITE),
        judged((WRITE, "allow"), at="1.0.q4"),
        started(WRITE, "1.0.q4"),
    ],
    "a fallback judged by its own name": [
        judged((WRITE, "allow")),
        started(WRITE),
        judged((WRITE.model_copy(update={"name": "append"}), "allow"), at="1.0.f0"),
        started(WRITE, "1.0.f0", name="append"),
    ],
    "another agent": [judged((DELEGATE, "allow")), CHILD],
    "a tool named delegate": [judged((DELEGATE, "allow")), started(DELEGATE)],
    "within the workflow task": [judged((READ, "allow")), started(READ, kind="local")],
    "a step judged beforehand": [
        judged((WRITE, "approval"), at="1.0.s0", purpose="saga"),
        judged((WRITE, "allow"), at="1.0.s0", purpose="saga"),
        started(WRITE, "1.0.s0"),
    ],
    "confirmed after a wait": [judged((WRITE, "allow")), judged((WRITE, "allow")), started(WRITE)],
    "denied and not run": [judged((WRITE, "deny"))],
}

UNLAWFUL: dict[str, list[GateFact]] = {
    "without any verdict": [started(WRITE)],
    "before its verdict": [started(WRITE), judged((WRITE, "allow"))],
    "after a denial": [judged((WRITE, "deny")), started(WRITE)],
    "after an invalid verdict": [judged((WRITE, "invalid")), started(WRITE)],
    "before a required approval": [judged((WRITE, "approval")), started(WRITE)],
    "after an allow verdict on its neighbour": [judged((READ, "allow"), (WRITE, "deny")), started(WRITE, "1.1")],
    "with other arguments": [judged((WRITE, "allow")), started(WRITE, arguments={"path": "a", "mode": 2})],
    "with the arguments that policy replaced": [judged((WRITE, "allow"), arguments={"path": "b"}), started(WRITE)],
    "with other arguments first, at one place": [
        judged((WRITE, "allow")),
        started(WRITE, arguments={"path": "a", "mode": 2}),
        started(WRITE),
    ],
    "by another tool": [judged((WRITE, "allow")), started(WRITE, name="delete")],
    "under another id": [judged((WRITE, "allow")), started(WRITE, call_id="c9")],
    "after an allow verdict that was withdrawn": [judged((WRITE, "allow")), judged((WRITE, "deny")), started(WRITE)],
    "after a denial that was reversed": [judged((WRITE, "deny")), judged((WRITE, "allow")), started(WRITE)],
    "after an approval that nobody gave": [judged((WRITE, "approval")), judged((WRITE, "allow")), started(WRITE)],
    "after an allow verdict on the same call elsewhere": [judged((WRITE, "allow"), at="1.7"), started(WRITE)],
    "after two verdicts on it, at another place": [
        *[judged((WRITE, "allow")), judged((WRITE, "allow")), started(WRITE), started(WRITE, "2.0")]
    ],
    "twice for one allow verdict": [judged((WRITE, "allow")), started(WRITE), started(WRITE, "2.0")],
    "a dead letter not judged again": [judged((WRITE, "allow")), started(WRITE), started(WRITE, "1.0.q4")],
    "a fallback not judged": [judged((WRITE, "allow")), started(WRITE), started(WRITE, "1.0.f0", name="append")],
    "when the gate failed": [AnsweredRequest(judged((WRITE, "allow")).request, None), started(WRITE)],
    "when verdicts are missing": [
        AnsweredRequest(judged((READ, "allow"), (WRITE, "allow")).request, (Verdict(decision="allow"),)),
        started(READ),
    ],
    "another agent than was allowed": [
        judged((DELEGATE, "allow")),
        started(DELEGATE, kind="child", call_id="", arguments={"agent": "boss", "task": "look"}),
    ],
    "another task than was allowed": [
        judged((DELEGATE, "allow")),
        started(DELEGATE, kind="child", call_id="", arguments={"agent": "helper", "task": "delete"}),
    ],
    "within the workflow task, denied": [judged((READ, "deny")), started(READ, kind="local")],
}


def recorded(facts: list[GateFact]) -> list[StartedCall]:
    return [fact for fact in facts if isinstance(fact, StartedCall) and fact.kind != "local"]


@pytest.mark.parametrize("facts", [pytest.param(facts, id=name) for name, facts in LAWFUL.items()])
def test_a_lawful_history_has_no_unlicensed_call(facts: list[GateFact]) -> None:
    assert unlicensed_calls(facts, recorded(facts)) == []


@pytest.mark.parametrize("facts", [pytest.param(facts, id=name) for name, facts in UNLAWFUL.items()])
def test_an_unlawful_history_has_one_unlicensed_call(facts: list[GateFact]) -> None:
    found = unlicensed_calls(facts, recorded(facts))
    assert [line.partition(": ")[2] for line in found] == ["no earlier verdict allows exactly this call"]


def test_the_history_and_not_the_replay_determines_the_executed_calls() -> None:
    facts: list[GateFact] = [judged((WRITE, "allow")), started(WRITE)]
    other = started(WRITE, arguments={"path": "/etc/passwd", "mode": 1})
    assert unlicensed_calls(facts, [other]) == ["1.0 write: no earlier verdict allows exactly this call"]


def test_each_call_that_no_replay_starts_is_reported() -> None:
    facts: list[GateFact] = [judged((WRITE, "allow")), started(WRITE)]
    twice = [started(WRITE), started(WRITE)]
    assert unlicensed_calls(facts, twice) == ["1.0 write: today's code starts no such call"]


def test_a_call_that_no_replay_starts_is_reported() -> None:
    assert unlicensed_calls([], [started(WRITE)]) == ["1.0 write: today's code starts no such call"]


def test_a_call_withdrawn_before_it_reached_the_history_was_not_run() -> None:
    assert unlicensed_calls([started(WRITE)], []) == []
