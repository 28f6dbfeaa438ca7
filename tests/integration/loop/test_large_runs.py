"""Runs whose iterations yield more than a context holds continue as new, end with a result, and can be read."""

from functools import partial
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.models.conversations import Conversations
from orga.activities.ports import ModelRequest
from orga.activities.replies import calls_byte_limit
from orga.client.runs.agents import AgentHandle
from orga.client.testing.script import Step
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.decisions.conversation import estimated_bytes, message_size
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.loop import WORKER_FACTS, Ran, a_loop

SOON = WORKER_FACTS.model_copy(update={"roll_over_bytes": 500_000})
"""Makes runs continue as new at a sixth of the usual bytes."""

BUDGET = LoopConfig().context_token_budget
LARGE = ToolOptions(max_result_bytes=500_000)


def counted(reply: Reply) -> Step:
    """Return a step that counts the request's tokens as a provider would."""

    def step(request: ModelRequest) -> Reply:
        tokens = sum(message_size(message) for message in request.messages) * 10 // 33
        return reply.model_copy(update={"usage": Usage(input_tokens=tokens, output_tokens=10)})

    return step


def a_result(arguments: dict[str, Any], context: object) -> str:
    return "r" * 490_000


SCENARIOS: dict[str, tuple[Reply, FakeTool]] = {
    "31 calls of 31 kB": (calls(*["look"] * 31, arguments={"text": "a" * 31_000}), FakeTool("look")),
    "3 results of 490 kB": (calls(*["look"] * 3), FakeTool("look", a_result, options=LARGE)),
    "3 results of 490 kB of quotes": (
        calls(*["look"] * 3, arguments={"q": '"'}),
        FakeTool("look", lambda arguments, context: '"' * 490_000, options=LARGE),
    ),
}


def largest(provider: ScriptedModel) -> int:
    return max(sum(message_size(message) for message in request.messages) for request in provider.seen)


def check_histories(ran: Ran) -> None:
    assert len(ran.histories) >= 3
    for history in ran.histories:
        assert sum(event.ByteSize() for event in history.events) < 6_000_000


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_large_run_continues_as_new_and_ends_with_a_result(client: Client, name: str) -> None:
    """The budget is the default.

    Without compaction the state would not fit, and the server would end the run at 50 MB.
    """
    reply, tool = SCENARIOS[name]
    between = calls("look") if len(reply.calls) > 3 else reply  # repeated oversized calls would end the run
    provider = ScriptedModel(
        [*[counted(reply), counted(reply), counted(between)] * 3, answers("all read")], repeats=True
    )
    async with a_loop(client, provider, tool, setup=SOON) as loop:
        ran = await loop.run(max_total_tokens=10**9)
        shown = await AgentHandle(client, ran.handle.id).conversation()

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "all read")
    assert ran.result.iterations == 10
    check_histories(ran)
    assert largest(provider) <= max(estimated_bytes(BUDGET) * 1.2, calls_byte_limit(16_384) + 20_000)
    assert shown[-1].text == "all read"
    called = [call.call_id for message in shown for call in message.calls]
    assert called == [message.call_id for message in shown if message.role == "tool"]


async def test_a_worker_with_only_the_history_cuts_results_the_same_way(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orga.client.workers.registrations.Conversations", partial(Conversations, max_bytes=100))
    reply = calls(*["look"] * 3, reply_text="t" * 100_000)
    provider = ScriptedModel([*[counted(reply)] * 3, answers("all read")], repeats=True)
    async with a_loop(client, provider, FakeTool("look", a_result, options=LARGE)) as loop:
        ran = await loop.run(max_total_tokens=10**9)
    assert ran.result.termination.reason == "completed"
    texts = [message.text for message in provider.seen[-1].messages if message.role == "tool"]
    assert all("[cut: 490000 bytes in all" in text for text in texts)
    assert largest(provider) <= estimated_bytes(BUDGET) * 1.2


async def test_a_conversation_larger_than_a_server_response_is_shown_in_pages(client: Client) -> None:
    texts: list[str] = [f"{number} " + '"' * 40_000 for number in range(24)]
    tool = FakeTool("look", lambda arguments, context: texts[int(arguments["n"])], options=LARGE)
    steps = [calls("look", arguments={"n": number}) for number in range(len(texts))]
    room: dict[str, Any] = {"context_token_budget": 10**8, "max_total_tokens": 10**9, "max_iterations": 100}
    async with a_loop(client, [*steps, answers("done")], tool) as loop:
        ran = await loop.run(**room)
        shown = await AgentHandle(client, ran.handle.id).conversation()
        plain = await ran.handle.query("conversation")
        few = await ran.handle.query("conversation", {"offset": 1, "limit": 2})

    assert [message.text for message in shown if message.role == "tool"] == texts
    assert 1 < len(plain) < len(shown)
    assert plain == [message.model_dump(mode="json") for message in shown[: len(plain)]]
    assert few == [message.model_dump(mode="json") for message in shown[1:3]]
