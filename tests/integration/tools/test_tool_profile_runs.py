"""Tool profiles on a real server: a hidden tool is not offered and cannot be called."""

from temporalio.client import Client

from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.runs.loop import a_loop


async def test_a_hidden_tool_cannot_be_called_even_when_its_name_is_guessed(client: Client) -> None:
    read, write = FakeTool("read_note"), FakeTool("write_note")
    provider = ScriptedModel([calls("write_note", "read_note"), answers("done")], repeats=True)
    async with a_loop(client, provider, read, write) as loop:
        ran = await loop.run(tool_profile={"include": ["read_*"]})

    assert (len(read.contexts), write.contexts) == (1, [])
    assert [tool.name for tool in provider.seen[0].tools] == ["read_note"]
    results = {message.tool: message for message in provider.seen[1].messages if message.role == "tool"}
    assert results["write_note"].text == "[Invalid call] there is no tool 'write_note'; the tools are: read_note"
    assert (ran.result.output, ran.result.tool_calls.run) == ("done", 1)


async def test_a_run_whose_profile_leaves_no_tool_can_still_answer(client: Client) -> None:
    provider = ScriptedModel([answers("done")], repeats=True)
    async with a_loop(client, provider, FakeTool("read_note")) as loop:
        ran = await loop.run(tool_profile={"exclude": ["*"]})

    assert (provider.seen[0].tools, ran.result.output) == ((), "done")
