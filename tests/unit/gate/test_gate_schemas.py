"""The gate validates final answers against their schema and can only reduce the tools of a delegation."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.agents.offered_tools import delegate_tool
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.gate.gate import MAX_REASON_CHARS, GateActivities, narrowed_tools
from orga.activities.ports import PolicyEngine
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.tools.activities import Beats
from tests.support.values.core import a_call
from tests.support.values.policies import a_verdict
from tests.support.values.strategies import LAW

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DELEGATES = (DelegateSpec(agent="writer", tools=("read", "write")), DelegateSpec(agent="reader"))
DELEGATE = delegate_tool(DELEGATES)


class Engine:
    """Gives one verdict and records the requests."""

    is_embedded = True

    def __init__(self, judgement: Verdict) -> None:
        self._judgement = judgement
        self.asked: list[GateRequest] = []

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Return the verdict."""
        self.asked.append(proposal)
        return self._judgement


async def verdict(engine: PolicyEngine, **fields: Any) -> Verdict:
    request = GateRequest(agent="lead", iteration=1, **fields)
    (found,) = (await Beats().run(GateActivities(engine, find_argument_errors).gate, request)).verdicts
    return found


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param("the answer is 3", "it is not JSON alone: Expecting value at character 0", id="prose"),
        pytest.param("", "it is not JSON alone: ", id="nothing"),
        pytest.param("{}", '$: "n" is a required property', id="a missing property"),
        pytest.param('{"n": "3"}', '$.n: "3" is not of type "integer"', id="a wrong type"),
        pytest.param("[1]", '$: [1] is not of type "object"', id="no object"),
        pytest.param('{"n": "\x00"}', "it is not JSON alone: Invalid control character", id="a raw control character"),
    ],
)
async def test_an_answer_that_does_not_match_its_schema_is_invalid_without_policy(answer: str, reason: str) -> None:
    engine = Engine(a_verdict(True))
    found = await verdict(engine, answer=answer, output_schema=SCHEMA)
    assert found.decision == "invalid"
    assert found.reason.startswith(f"the final answer does not fit the schema: {reason}")
    assert len(found.reason) <= MAX_REASON_CHARS
    assert engine.asked == []


@pytest.mark.parametrize("answer", ['{"n": 3}', '```json\n{"n": 3}\n```'])
async def test_a_valid_answer_goes_to_the_policy_unchanged(answer: str) -> None:
    engine = Engine(a_verdict(False, reason="three is a secret"))
    found = await verdict(engine, answer=answer, output_schema=SCHEMA)
    assert (found, engine.asked[0].answer) == (Verdict(decision="deny", reason="three is a secret"), answer)


async def test_calls_are_not_validated_against_the_schema_of_the_answer() -> None:
    call = a_call("delegate", agent="reader", task="read")
    found = await verdict(
        Engine(a_verdict(True)), calls=(call,), specs=(DELEGATE,), delegates=DELEGATES, output_schema=SCHEMA
    )
    assert found == Verdict(decision="allow")


def delegation(agent: str) -> dict[str, Any]:
    call: ToolCall = a_call("delegate", agent=agent, task="do it")
    return {"calls": (call,), "specs": (DELEGATE,), "offered": ("delegate",), "delegates": DELEGATES}


@pytest.mark.parametrize(
    ("agent", "judged", "tools"),
    [
        pytest.param("writer", None, ("read", "write"), id="the config's own narrowing"),
        pytest.param("writer", ("write", "run"), ("write",), id="narrowed by the policy, never widened"),
        pytest.param("writer", ("run",), (), id="nothing left"),
        pytest.param("reader", ("read",), ("read",), id="narrowed only by the policy"),
        pytest.param("reader", None, None, id="not narrowed"),
    ],
)
async def test_an_allowed_delegation_records_its_tools(
    agent: str, judged: tuple[str, ...] | None, tools: tuple[str, ...] | None
) -> None:
    found = await verdict(Engine(a_verdict(True, tools=judged)), **delegation(agent))
    assert (found.decision, found.tools) == ("allow", tools)
    assert ("tools" in found.model_fields_set) is (tools is not None)


async def test_a_denied_delegation_has_only_a_reason() -> None:
    found = await verdict(Engine(a_verdict(False, reason="no", tools=("read",))), **delegation("writer"))
    assert found == Verdict(decision="deny", reason="no")


async def test_the_default_policy_allows_a_listed_delegation_with_its_tools() -> None:
    assert await verdict(ListedTools(), **delegation("writer")) == Verdict(decision="allow", tools=("read", "write"))


async def test_an_unknown_agent_is_invalid_and_the_known_ones_are_listed() -> None:
    found = await verdict(Engine(a_verdict(True)), **delegation("nobody"))
    assert found.decision == "invalid"
    assert '$.agent: "nobody" is not one of "writer" or "reader"' in found.reason


async def test_a_delegation_without_known_bounds_is_denied() -> None:
    found = await verdict(Engine(a_verdict(True)), **delegation("writer") | {"delegates": ()})
    assert found == Verdict(decision="deny", reason="'writer' is no agent to delegate to")


async def test_tools_in_a_verdict_have_no_effect_on_other_calls() -> None:
    found = await verdict(Engine(a_verdict(True, tools=("x",))), answer="done")
    assert found == Verdict(decision="allow")


some_tools = st.none() | st.lists(st.sampled_from("abc"), max_size=3).map(tuple)


@LAW
@given(some_tools, some_tools)
def test_a_policy_never_adds_tools(config: Sequence[str] | None, policy: Sequence[str] | None) -> None:
    target = DelegateSpec(agent="a", tools=None if config is None else tuple(config))
    found = narrowed_tools(target, a_verdict(True, tools=None if policy is None else tuple(policy)))
    for bound in (config, policy):
        assert bound is None or (found is not None and set(found) <= set(bound))
