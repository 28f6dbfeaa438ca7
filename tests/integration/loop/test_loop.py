"""The loop from the outside: its answer, what the model reads, and its journal."""

from temporalio.client import Client

from orga.activities.ports import ModelError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.runs.loop import Deny, a_loop


async def test_text_is_an_answer(client: Client) -> None:
    async with a_loop(client, [answers("42")]) as loop:
        ran = await loop.run("what?")

    assert (ran.result.output, ran.result.iterations) == ("42", 1)
    assert ran.result.termination.reason == "completed"
    assert ran.result.usage.total_tokens == 110
    assert ran.events == [
        "Started",
        "Prepared",
        "ReasoningComplete",
        "PolicyEvaluated",
        "ToolsDispatched",
        "ObservationsCollected",
        "Terminated",
    ]


async def test_a_tool_then_an_answer(client: Client) -> None:
    tool = FakeTool("look", lambda arguments, context: f"seen {arguments['path']}")
    provider = ScriptedModel(
        [calls("look", arguments={"path": "a.md"}, reply_text="I look."), answers("found")], repeats=True
    )
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    second = provider.seen[1].messages
    assert [(m.role, m.text, m.call_id) for m in second[1:]] == [
        ("assistant", "I look.", None),
        ("tool", "seen a.md", "look_0"),
    ]
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 1, "denied": 0, "failed": 0}
    assert ran.events.count("ReasoningComplete") == 2


async def test_a_denied_tool_call_still_gets_a_result(client: Client) -> None:
    """Providers reject a request if any call has no result."""
    tool = FakeTool("delete")
    provider = ScriptedModel([calls("delete"), answers()], repeats=True)
    async with a_loop(client, provider, tool, engine=Deny("delete")) as loop:
        ran = await loop.run()

    assert tool.contexts == []
    answer = provider.seen[1].messages[-1]
    assert (answer.call_id, answer.text, answer.is_error) == ("delete_0", "[Policy denied] delete is forbidden", True)
    assert ran.result.tool_calls.denied == 1


async def test_the_last_error_of_the_provider_reaches_the_result(client: Client) -> None:
    failure = ModelError("AuthenticationFailed", "acme: 401 no such key", retryable=False)
    async with a_loop(client, [failure]) as loop:
        ran = await loop.run()

    assert ran.result.termination.reason == "error"
    assert "401 no such key" in ran.result.termination.detail
