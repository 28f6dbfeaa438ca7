"""Agents in a user's own application, with its client, its worker and its workflows, on a real server."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError
from temporalio.worker import Replayer, Worker

from orga import Agent, GoalHandle, JournalEntry, LiveActivity, OrgaPlugin, SessionHandle, start_agent
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.errors import ConfigError, NotAnAgent, Refused
from orga.client.journal.reading import read_journal
from orga.workflows.types.status import AgentResult
from tests.support.hold import PATIENCE_S, wait_until
from tests.support.mcp.sources import hostile
from tests.support.model.chat_server import Calls, CallsAtOnce, ChatServer, Says, chat_server
from tests.support.runs.desk import Sale, Till, note_down, stock


@pytest.fixture
def chat() -> Generator[ChatServer]:
    """A model that calls a function and an activity, then answers."""
    both = CallsAtOnce([Calls("stock", {"item": "lamp"}), Calls("charge", {"cents": 1250})])
    with chat_server(both, Says(["sold"])) as chat:
        yield chat


@dataclass
class Reversed(PayloadCodec):
    """A codec of the application. The server cannot read its values."""

    seen: list[bytes] = field(default_factory=list[bytes])

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata=each.metadata, data=each.data[::-1]) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.seen += [each.data for each in payloads]
        return [Payload(metadata=each.metadata, data=each.data[::-1]) for each in payloads]


@dataclass
class Application:
    """The client of the application, and the task queue of its worker."""

    client: Client
    task_queue: str
    plugin: OrgaPlugin

    async def sell(self, agent: str = "clerk", task: str = "sell a lamp") -> WorkflowHandle[Sale, str]:
        """Start the application's own workflow."""
        return await self.client.start_workflow(
            Sale.run, args=[agent, task], id=f"sale-{uuid.uuid4()}", task_queue=self.task_queue
        )

    async def child_of(self, handle: WorkflowHandle[Any, Any]) -> str:
        """Return the id of the agent's run that a workflow has started, once it exists."""

        found: list[str] = []

        async def is_there() -> bool:
            history = await handle.fetch_history()
            started = [each.child_workflow_execution_started_event_attributes for each in history.events]
            found.extend(each.workflow_execution.workflow_id for each in started if each.workflow_type.name)
            return bool(found)

        await wait_until(is_there)
        return found[0]


@asynccontextmanager
async def an_application(
    server: Client, chat: ChatServer, root: Path, *, converter: DataConverter = DataConverter.default, **given: Any
) -> AsyncGenerator[Application]:
    models = ModelsConfig(default="openai-compatible:test", base_urls={"openai-compatible": chat.url})
    plugin = OrgaPlugin(config=OrgaConfig(models=models), root=root, **given)
    address = server.service_client.config.target_host
    client = await Client.connect(address, plugins=[plugin], data_converter=converter)
    queue = f"app-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Sale], activities=[note_down]):
        yield Application(client, queue, plugin)


async def test_an_agent_with_tools_of_the_application_is_a_child_of_its_workflow(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    till = Till()
    clerk = Agent("clerk", tools=[stock, till.charge])
    async with an_application(client, chat, tmp_path, agents=[clerk]) as app:
        handle = await app.sell()
        assert await handle.result() == "noted: completed: sold"
        child = await app.child_of(handle)
        journal = [entry async for entry in read_journal(app.client, child)]
        history = await handle.fetch_history()
        ours = await app.client.get_workflow_handle(child).fetch_history()
    assert till.charged == [1250]
    reported = [message["content"] for message in chat.requests[-1]["messages"] if message["role"] == "tool"]
    assert ["4 of lamp" in reported[0], "charged 1250" in reported[1]] == [True, True]
    assert {"ToolsDispatched", "ObservationsCollected"} <= {entry.event for entry in journal}
    replayer = Replayer(workflows=[Sale], plugins=[app.plugin])
    await replayer.replay_workflow(history)
    await replayer.replay_workflow(ours)


async def test_an_agent_is_started_from_the_applications_client(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    """A payload codec of the application also covers what agents write."""
    codec = Reversed()
    converter = replace(DataConverter.default, payload_codec=codec)
    clerk = Agent("clerk", tools=[stock, Till().charge])
    async with an_application(client, chat, tmp_path, converter=converter, agents=[clerk]) as app:
        handle = await start_agent(app.client, {"task": "sell", "agent": "clerk"}, task_queue=app.task_queue)
        result = await handle.result()
    assert result.output == "sold"
    assert any(b"dlos" in data for data in codec.seen)


async def test_a_run_is_followed_through_the_codec_and_a_refused_update_says_why(
    client: Client, tmp_path: Path
) -> None:
    converter = replace(DataConverter.default, payload_codec=Reversed())
    with chat_server(Says(["It is", " so."], hold=True)) as chat:
        async with an_application(client, chat, tmp_path, converter=converter, agents=[Agent("clerk")]) as app:
            handle = await start_agent(app.client, {"task": "say so", "agent": "clerk"}, task_queue=app.task_queue)
            async with asyncio.timeout(PATIENCE_S):
                async for event in handle.events():
                    if isinstance(event, LiveActivity) and event.text == "It is":
                        break
            decision = {"approval_id": "a1", "approver": "ada"}
            with pytest.raises(WorkflowUpdateFailedError, match="'a1'"):
                await app.client.get_workflow_handle(handle.id).execute_update("approve", decision)  # pyright: ignore[reportUnknownMemberType]
            with pytest.raises(Refused, match="choice"):
                await handle.resolve_escalation("e1", "maybe")  # pyright: ignore[reportArgumentType]
            chat.release.set()
            events = [event async for event in handle.events() if isinstance(event, JournalEntry)]
    assert [events[0].data["task"], events[-1].event] == ["say so", "Terminated"]


async def test_a_handle_for_another_kind_of_run_is_refused(client: Client, tmp_path: Path) -> None:
    with chat_server(Says(["It is", " so."], hold=True)) as chat:
        async with an_application(client, chat, tmp_path, agents=[Agent("clerk")]) as app:
            run = await start_agent(app.client, {"task": "say so", "agent": "clerk"}, task_queue=app.task_queue)
            goal, session = GoalHandle(app.client, run.id), SessionHandle(app.client, run.id)
            with pytest.raises(Refused, match="is a workflow of type AgentWorkflow, which has no update 'send'"):
                await session.send("Hello.")
            for read in (goal.status, session.status):
                with pytest.raises(NotAnAgent, match=r"of type AgentWorkflow; this takes only (Goal|Session)Workflow"):
                    await read()
            chat.release.set()
            for read in (goal.result, session.result):
                with pytest.raises(NotAnAgent, match=r"of type AgentWorkflow; this takes only (Goal|Session)Workflow"):
                    await read()


async def test_bad_input_fails_the_workflow_instead_of_blocking_it(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    async with an_application(client, chat, tmp_path) as app:
        blank, nobody = await app.sell(task=" "), await app.sell(agent="nobody")
        with pytest.raises(WorkflowFailureError) as refused:
            await blank.result()
        with pytest.raises(WorkflowFailureError) as unknown:
            await nobody.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert "task: must not be empty" in str(refused.value.cause)
    assert isinstance(unknown.value.cause, ChildWorkflowError)
    assert "there is no agent 'nobody'" in str(unknown.value.cause.cause)


async def test_a_policy_given_in_code_judges_the_tools_given_in_code(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    (tmp_path / "desk.cedar").write_text(
        '@id("look") permit (principal, action == Action::"tool_call", resource)'
        'when { resource.effect == "read_only" };'
        '@id("say") permit (principal, action == Action::"respond", resource);'
    )
    till = Till()
    clerk = Agent("clerk", tools=[stock, till.charge])
    async with an_application(client, chat, tmp_path, agents=[clerk], policy=tmp_path) as app:
        assert await (await app.sell()).result() == "noted: completed: sold"
    assert till.charged == []


async def test_a_worker_without_policies_may_not_take_a_queue_that_policies_have_judged(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    (tmp_path / "all.cedar").write_text("permit (principal, action, resource);")
    clerk = Agent("clerk", tools=[stock])
    async with an_application(client, chat, tmp_path, agents=[clerk], policy=tmp_path) as app:
        child = await app.child_of(await app.sell())
        await app.client.get_workflow_handle(child).result()

        async def is_listed() -> bool:
            query = f'WorkflowType = "AgentWorkflow" AND TaskQueue = "{app.task_queue}"'
            return [run.id async for run in app.client.list_workflows(query)] == [child]

        await wait_until(is_listed)
    bare = OrgaPlugin(config=OrgaConfig(), root=tmp_path, agents=[clerk])
    bare_client = await Client.connect(client.service_client.config.target_host, plugins=[bare])
    with pytest.raises(ConfigError, match="cedar has judged the runs here, and now default would"):
        await Worker(bare_client, task_queue=app.task_queue).run()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConfigError, match="cedar has judged the runs here"):
            async with Worker(bare_client, task_queue=app.task_queue):
                await asyncio.Event().wait()


async def test_an_agent_has_the_tools_of_an_mcp_server_given_in_code(client: Client, tmp_path: Path) -> None:
    with chat_server(Calls("docs_echo", {"text": "hello"}), Says(["heard"])) as chat:
        servers = {"docs": hostile(tmp_path, tools=["echo"])}
        clerk = Agent("clerk", tools=["docs_*"])
        async with an_application(client, chat, tmp_path, agents=[clerk], mcp_servers=servers) as app:
            handle = await start_agent(app.client, {"task": "say hello", "agent": "clerk"}, task_queue=app.task_queue)
            result = await handle.result()
    assert (result.output, result.tool_calls.run) == ("heard", 1)


async def test_a_cancelled_workflow_aborts_its_agent(client: Client, tmp_path: Path) -> None:
    with chat_server(Says(["never", "said"], hold=True)) as chat:
        async with an_application(client, chat, tmp_path, agents=[Agent("clerk")]) as app:
            handle = await app.sell()
            child = app.client.get_workflow_handle(await app.child_of(handle))

            async def is_asked() -> bool:
                return bool(chat.requests)

            await wait_until(is_asked)
            await handle.cancel()
            result = AgentResult.model_validate(await child.result())
            with pytest.raises(WorkflowFailureError) as cancelled:
                await handle.result()
            chat.release.set()
    assert result.termination.reason == "aborted"
    assert isinstance(cancelled.value.cause, CancelledError)
