"""The gate: arguments first, then policy; whatever goes wrong is not allowed."""

from collections.abc import Callable
from typing import Any

import pytest

from activities.adapters.arguments import argument_errors
from activities.gate import MAX_REASON_CHARS, GateActivities
from activities.ports import Judgement, Proposal
from tests.support.activities import Beats
from tests.support.core import a_call, a_spec
from workflows.types.gate import GateRequest, Verdict
from workflows.types.messages import ToolCall
from workflows.types.tools import ToolSpec

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = a_spec("read", parameters=SCHEMA)
BROKEN = a_spec("broken", parameters={"type": "nonsense"})
GOOD = a_call("read", path="a")
Answer = Callable[[Proposal], Judgement]


class Engine:
    """Answers as a test says and keeps what it was asked."""

    def __init__(self, answer: Answer | Exception | Judgement) -> None:
        self.answer = answer
        self.asked: list[Proposal] = []

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return or raise the answer."""
        self.asked.append(proposal)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, Judgement) else self.answer(proposal)


ALLOW = Judgement(allowed=True)


def asked_for(*calls: ToolCall, specs: tuple[ToolSpec, ...] = (READ, BROKEN), **fields: Any) -> GateRequest:
    """Return a request for these calls, or for an answer when there are none."""
    about: dict[str, Any] = {"agent": "coder", "iteration": 3, "offered": ("read", "broken"), **fields}
    return GateRequest(calls=calls, specs=specs, **about)


async def verdicts(engine: Engine, request: GateRequest) -> tuple[Verdict, ...]:
    return (await Beats().run(GateActivities(engine, argument_errors).gate, request)).verdicts


async def test_what_the_policy_allows_is_allowed_without_a_reason() -> None:
    engine = Engine(Judgement(allowed=True, reason="because"))
    assert await verdicts(engine, asked_for(GOOD)) == (Verdict(decision="allow"),)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(Judgement(allowed=False, reason="no writes"), "no writes", id="with the engine's reason"),
        pytest.param(Judgement(allowed=False), "not allowed", id="without a reason"),
        pytest.param(Judgement(allowed=False, reason="a\x00\ud800"), "a\ufffd\ufffd", id="with a reason made valid"),
        pytest.param(Judgement(allowed=False, reason="x" * 5_000), "x" * MAX_REASON_CHARS, id="with a reason cut"),
        pytest.param(KeyError("role"), "the policy engine failed: KeyError: 'role'", id="because the engine failed"),
        pytest.param(TimeoutError(), "the policy engine failed: TimeoutError: ", id="because the engine was too slow"),
    ],
)
async def test_a_call_is_denied(answer: Judgement | Exception, reason: str) -> None:
    assert await verdicts(Engine(answer), asked_for(GOOD)) == (Verdict(decision="deny", reason=reason),)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        pytest.param(a_call("rm"), "there is no tool 'rm'; the tools are: read, broken", id="an unknown tool"),
        pytest.param(a_call("Read"), "there is no tool 'Read'", id="a tool in other letters"),
        pytest.param(a_call("x" * 5_000), "there is no tool 'xxx", id="a very long name"),
        pytest.param(
            ToolCall(call_id="c1", name="read", malformed='{"path": '),
            'the arguments of read are not a JSON object: {"path": ',
            id="malformed arguments",
        ),
        pytest.param(a_call("read"), "the arguments of read do not fit: ", id="a missing argument"),
        pytest.param(
            a_call("read", path=1), "the arguments of read do not fit: $.path: ", id="an argument of a wrong type"
        ),
        pytest.param(a_call("broken"), "broken cannot be called: its schema is invalid", id="a broken schema"),
    ],
)
async def test_a_call_that_cannot_be_made_is_invalid_and_no_policy_is_asked(call: ToolCall, reason: str) -> None:
    engine = Engine(ALLOW)
    (verdict,) = await verdicts(engine, asked_for(call))
    assert (verdict.decision, verdict.reason[: len(reason)]) == ("invalid", reason)
    assert len(verdict.reason) <= MAX_REASON_CHARS
    assert engine.asked == []


async def test_without_tools_an_unknown_call_is_told_so() -> None:
    (verdict,) = await verdicts(Engine(ALLOW), asked_for(a_call("rm"), specs=(), offered=()))
    assert verdict.reason == "there is no tool 'rm'; the tools are: none"


async def test_there_is_one_verdict_for_each_call_in_call_order() -> None:
    engine = Engine(lambda proposal: Judgement(allowed=proposal.call == GOOD, reason="no"))
    calls = (a_call("read", "1", path="b"), GOOD, a_call("rm", "3"), a_call("read", "4", path="c"))
    found = await verdicts(engine, asked_for(*calls))
    assert [verdict.decision for verdict in found] == ["deny", "allow", "invalid", "deny"]


async def test_one_failure_of_the_engine_denies_one_call() -> None:
    def answer(proposal: Proposal) -> Judgement:
        if proposal.call == GOOD:
            return ALLOW
        raise RuntimeError("rule 7 is broken")

    found = await verdicts(Engine(answer), asked_for(a_call("read", "1", path="b"), GOOD))
    assert [verdict.decision for verdict in found] == ["deny", "allow"]


async def test_a_policy_cannot_change_a_final_answer_so_one_that_wants_to_denies_it() -> None:
    """It was not meant to be said as it stands."""
    engine = Engine(Judgement(allowed=True, arguments={"answer": "less"}))
    (verdict,) = await verdicts(engine, asked_for(answer="all of it"))
    assert (verdict.decision, "wants to change a final answer" in verdict.reason) == ("deny", True)


async def test_the_final_answer_is_judged_too() -> None:
    engine = Engine(Judgement(allowed=False, reason="holds a secret"))
    assert await verdicts(engine, asked_for(answer="the key is")) == (
        Verdict(decision="deny", reason="holds a secret"),
    )
    assert (engine.asked[0].call, engine.asked[0].answer) == (None, "the key is")


async def test_the_engine_learns_all_that_a_policy_may_rely_on() -> None:
    engine = Engine(ALLOW)
    await verdicts(engine, asked_for(GOOD, tenant="acme", trusted_context={"role": "admin"}))
    assert engine.asked == [
        Proposal(
            agent="coder",
            iteration=3,
            call=GOOD,
            spec=READ,
            tenant="acme",
            trusted_context={"role": "admin"},
            listed=("read", "broken"),
        )
    ]
