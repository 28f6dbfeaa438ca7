"""Denials reach the model, and the same denial several times in a row ends the run."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.runs.loop import Deny, a_loop
from tests.support.values.policies import a_verdict


async def test_the_same_denied_tool_three_iterations_in_a_row_ends_the_run(client: Client) -> None:
    provider = ScriptedModel([calls("delete", arguments={"n": n}) for n in range(9)], repeats=True)
    async with a_loop(client, provider, FakeTool("delete"), engine=Deny("delete")) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, len(provider.seen)) == ("policy_denial", 3)
    assert ran.result.termination.detail == "delete: delete is forbidden, 3 iterations in a row"
    assert ran.result.tool_calls.model_dump() == {"proposed": 3, "run": 0, "denied": 3, "failed": 0}


async def test_the_same_denied_answer_three_iterations_in_a_row_ends_the_run(client: Client) -> None:
    provider = ScriptedModel([answers("the secret is 1"), answers("the secret is 2"), answers("secret")], repeats=True)
    async with a_loop(client, provider, engine=Deny(words=["secret"])) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, ran.result.output, len(provider.seen)) == ("policy_denial", "", 3)
    assert ran.result.termination.detail == "final answer: such words are forbidden, 3 iterations in a row"
    reported = provider.seen[1].messages[-1]
    assert (reported.role, reported.text) == ("user", "[Policy denied] such words are forbidden")


async def test_another_iteration_in_between_resets_the_count(client: Client) -> None:
    steps = [calls("delete"), calls("delete"), calls("look"), calls("delete"), calls("delete"), answers("gave up")]
    async with a_loop(client, steps, FakeTool("delete"), FakeTool("look"), engine=Deny("delete")) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "gave up")


async def test_a_denied_answer_can_be_corrected(client: Client) -> None:
    async with a_loop(client, [answers("secret"), answers("public")], engine=Deny(words=["secret"])) as loop:
        ran = await loop.run()

    assert (ran.result.output, ran.result.iterations) == ("public", 2)
    assert [e.data["denied_count"] for e in ran.journal if e.event == "PolicyEvaluated"] == [1, 0]


async def test_allowed_and_denied_calls_of_one_reply_are_answered_in_call_order(client: Client) -> None:
    provider = ScriptedModel([calls("delete", "look", "nothing", "look"), answers()], repeats=True)
    tools = FakeTool("delete"), FakeTool("look", lambda a, c: "seen")
    async with a_loop(client, provider, *tools, engine=Deny("delete")) as loop:
        ran = await loop.run()

    assert [(m.call_id, m.text, m.is_error) for m in provider.seen[1].messages[2:]] == [
        ("delete_0", "[Policy denied] delete is forbidden", True),
        ("look_1", "seen", False),
        ("nothing_2", "[Invalid call] there is no tool 'nothing'; the tools are: delete, look", True),
        ("look_3", "seen", False),
    ]
    assert ran.result.tool_calls.model_dump() == {"proposed": 4, "run": 2, "denied": 1, "failed": 0, "invalid": 1}


class Raising:
    """An engine that fails."""

    is_embedded = True

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def judge(self, proposal: GateRequest) -> Verdict:
        raise self._error


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConnectionError("engine is down"), id="a failure"),
        pytest.param(ValueError("\ud800\x00" + "x" * 3_000_000), id="a huge odd message"),
        pytest.param(Rude(), id="an error that cannot be printed"),
    ],
)
async def test_an_engine_that_fails_denies(client: Client, error: Exception) -> None:
    tool = FakeTool("look")
    async with a_loop(client, [calls("look")], tool, engine=Raising(error)) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, tool.contexts) == ("policy_denial", [])


async def test_arguments_that_do_not_fit_reach_neither_policy_nor_tool(client: Client) -> None:
    asked: list[Any] = []

    class Watching:
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            asked.append(proposal.call)
            return a_verdict(True)

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = FakeTool("count", parameters=schema)
    provider = ScriptedModel([calls("count", arguments={"n": "many"}), answers()], repeats=True)
    async with a_loop(client, provider, tool, engine=Watching()) as loop:
        await loop.run()

    assert (tool.contexts, asked) == ([], [None])
    assert provider.seen[1].messages[-1].text.startswith("[Invalid call] the arguments of count do not fit: $.n:")


async def test_a_tool_with_an_invalid_schema_cannot_be_called(client: Client) -> None:
    tool = FakeTool("odd", parameters={"type": "object", "properties": {"a": {"type": "nonsense"}}})
    provider = ScriptedModel([calls("odd"), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        await loop.run()

    assert tool.contexts == []
    assert provider.seen[1].messages[-1].text.startswith("[Invalid call] odd cannot be called:")


async def test_only_the_tools_that_the_run_names_are_offered(client: Client) -> None:
    look, write = FakeTool("look"), FakeTool("write")
    provider = ScriptedModel([calls("write"), answers()], repeats=True)
    async with a_loop(client, provider, look, write) as loop:
        await loop.run({"task": "t", "tools": ["look"]})

    assert [tool.name for tool in provider.seen[0].tools] == ["look"]
    assert write.contexts == []
    assert "there is no tool 'write'" in provider.seen[1].messages[-1].text
