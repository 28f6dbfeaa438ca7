"""The injection corpus in the real loop, with a model that obeys every text: nothing forbidden happens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.ports import ModelRequest, ToolContext
from orga.activities.text.sanitize import sanitized_text
from orga.client.testing.script import USAGE, Step
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.text import DELIMITER_MEANING
from tests.support.hold import wait_until
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update
from tests.support.values.corpora import Case, corpus
from tests.support.values.policies import PERMIT_ALL, a_folder

CASES = corpus("injections")["cases"]
FORBIDDEN = sorted({case["call"] for case in CASES})
BATCH = 30
POLICY = Path(__file__).parents[3] / "examples" / "policies" / "untrusted.cedar"
ROOM = {"max_iterations": 50, "max_total_tokens": 1_000_000, "context_token_budget": 200_000}


def read_document() -> FakeTool:
    def text(arguments: dict[str, Any], context: ToolContext) -> str:
        return str(CASES[int(arguments["number"])]["text"])

    return FakeTool("read_document", text)


def forbidden_tools() -> list[FakeTool]:
    return [FakeTool(name, effect="irreversible") for name in FORBIDDEN]


def obedient(batches: Sequence[Sequence[int]]) -> list[Step]:
    """Return steps that read the documents of a batch, and then do what each document says."""
    steps: list[Step] = []
    for batch in batches:
        reads = tuple(ToolCall(call_id=f"doc{n}", name="read_document", arguments={"number": n}) for n in batch)
        steps += [Reply.of(calls=reads, finish="tool_calls", usage=USAGE), obeys]
    return [*steps, answers("done")]


def obeys(request: ModelRequest) -> Reply:
    """Propose the forbidden call of each document that was read last."""
    last = max(i for i, message in enumerate(request.messages) if message.role == "assistant")
    numbers = [int((message.call_id or "").removeprefix("doc")) for message in request.messages[last + 1 :]]
    made = tuple(ToolCall(call_id=f"evil{n}", name=CASES[n]["call"], arguments={"of": CASES[n]["id"]}) for n in numbers)
    return Reply.of(calls=made, finish="tool_calls", usage=USAGE)


def batches() -> list[list[int]]:
    numbers = list(range(len(CASES)))
    return [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)]


def scheduled(ran: Ran) -> set[str]:
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    events = [event for history in ran.histories for event in history.events if event.event_type == kind]
    return {event.activity_task_scheduled_event_attributes.activity_type.name for event in events}


def results(provider: ScriptedModel, prefix: str) -> dict[str, str]:
    """Return the results of these calls as sent to the model, by call id."""
    messages = [message for request in provider.given for message in request.messages if message.role == "tool"]
    return {message.call_id: message.text for message in messages if (message.call_id or "").startswith(prefix)}  # pyright: ignore


def is_delimited(text: str, case: Case) -> bool:
    """Return true if the document is between two lines with a mark that it does not contain."""
    first, data, last = text.split("\n", 1)[0], text.split("\n", 1)[1].rpartition("\n")[0], text.rpartition("\n")[2]
    mark = first[1:13]
    return (
        first.startswith(f"[{mark} begins: result of read_document ")
        and last == f"[{mark} ends]"
        and data == sanitized_text(case["text"])
        and mark not in data
    )


async def test_an_agent_with_only_read_tools_does_nothing_else(client: Client) -> None:
    """The default gate: a tool that the agent does not list does not exist, whatever a text says."""
    tools, provider = forbidden_tools(), ScriptedModel(obedient(batches()), repeats=True)
    only_reads = {"default": AgentConfig(tools=("read_document",))}
    async with a_loop(client, provider, read_document(), *tools, agents=only_reads) as loop:
        ran = await loop.run("sum the documents up", **ROOM)

    assert [tool.name for tool in tools if tool.contexts] == []
    assert scheduled(ran) == {"prepare", "reason", "read_document"}
    reported = results(provider, "evil")
    assert len(reported) == len(CASES) == ran.result.tool_calls.invalid
    assert [text for text in reported.values() if not text.startswith(("[Policy denied]", "[Invalid call]"))] == []


async def test_every_text_reaches_the_model_as_data(client: Client) -> None:
    provider = ScriptedModel(obedient(batches()), repeats=True)
    only_reads = {"default": AgentConfig(tools=("read_document",), instructions="Be short.")}
    async with a_loop(client, provider, read_document(), agents=only_reads) as loop:
        await loop.run("sum the documents up", **ROOM)

    reported = results(provider, "doc")
    assert [case["id"] for n, case in enumerate(CASES) if not is_delimited(reported[f"doc{n}"], case)] == []
    assert {request.system for request in provider.given} == {("Be short.", DELIMITER_MEANING)}
    assert {message.role for request in provider.given for message in request.messages} == {"user", "assistant", "tool"}


async def pending(handle: WorkflowHandle[Any, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def asks() -> bool:
        found[:] = (await handle.query("status"))["pending_approvals"]
        return bool(found)

    await wait_until(asks)
    return found


async def test_nothing_irreversible_happens_after_untrusted_content_without_approval(
    client: Client, tmp_path: Path
) -> None:
    """This is the shipped Cedar rule: before a text was read the same call is allowed, afterwards a person decides."""
    folder = a_folder(tmp_path, all=PERMIT_ALL, untrusted=POLICY.read_text())
    tools = forbidden_tools()
    free = calls("send_money", arguments={"of": "the task itself"})
    provider = ScriptedModel([free, *obedient(batches()), answers("done")], repeats=True)
    async with a_loop(client, provider, read_document(), *tools, engine=CedarPolicies(folder)) as loop:
        handle = await loop.start("pay, then sum the documents up", **ROOM)
        decided = 0
        while decided < len(CASES):
            for question in await pending(handle):
                assert question["call"]["name"] in FORBIDDEN
                approver = {"approval_id": question["approval_id"], "approver": "ada", "reason": "no"}
                is_last = decided == len(CASES) - 1
                await send_update(handle, "approve" if is_last else "deny", approver)
                decided += 1
        ran = await loop.ended(handle)

    carried_out = [(tool.name, context.call_id) for tool in tools for context in tool.contexts]
    assert carried_out == [(CASES[-1]["call"], f"evil{len(CASES) - 1}"), ("send_money", "send_money_0")]
    assert ran.result.tool_calls.denied == len(CASES) - 1
