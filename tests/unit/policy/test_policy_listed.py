"""The two embedded policies."""

import logging

import pytest

from orga.activities.adapters.policy.engines import AllowAll, ListedTools
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import GateRequest


def a_call(name: str, *listed: str) -> GateRequest:
    return GateRequest(agent="a", iteration=1, calls=(ToolCall(call_id="c1", name=name),), offered=listed)


@pytest.mark.parametrize(
    ("proposal", "allowed"),
    [
        pytest.param(a_call("read_file", "read_file"), True, id="listed"),
        pytest.param(a_call("write_file", "read_file"), False, id="not listed"),
        pytest.param(a_call("read_file"), False, id="nothing is listed"),
        pytest.param(a_call("READ_FILE", "read_file"), False, id="another case"),
        pytest.param(a_call("read", "read_file"), False, id="part of a name"),
        pytest.param(a_call("", "read_file"), False, id="no name"),
        pytest.param(GateRequest(agent="a", iteration=1, answer="done"), True, id="final answer"),
    ],
)
async def test_listed_tools(proposal: GateRequest, allowed: bool) -> None:
    assert ((await ListedTools().judge(proposal)).decision != "deny") is allowed


async def test_a_denial_names_the_listed_tools() -> None:
    judgement = await ListedTools().judge(a_call("write_file", "read_file", "list_files"))
    assert judgement.reason == "write_file is not listed for this agent; listed: read_file, list_files"


async def test_allow_all_warns_once_at_its_creation(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        policy = AllowAll()
        assert (await policy.judge(a_call("anything"))).decision != "deny"
        assert (await policy.judge(a_call("anything"))).decision != "deny"
    assert [record.message for record in caplog.records if "POLICY IS OFF" in record.message] == [
        "POLICY IS OFF: every tool call of every agent is allowed; set another [policy] engine for real work"
    ]
