"""Runs with a model, a policy, a critic, a summarizer and a store that the application gives as objects."""

import json
import re
import shutil
import subprocess
import sys
import uuid
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Replayer, Worker

from examples.parts.parts import FirstLines, HouseModel, LengthCritic, MemoryBlobs, MemoryStore, OfficeHours
from orga import (
    Agent,
    AgentHandle,
    LoopConfig,
    Media,
    OrgaPlugin,
    create_schedule,
    start_agent,
    start_session,
    tool,
)
from orga.activities.media import digest_of
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.client.journal.reading import read_journal
from orga.ports import Critic, Dimension, KnowledgeItem, Message, ModelRequest, Recall, Reply, ToolCall, Usage
from orga.runs import keep_attachments
from orga.testing import ScriptedModel, answers, calls
from orga.workflows.types.input import RunKnowledge
from orga.workflows.types.recall import STORE_KNOWLEDGE
from tests.support.model.chat_server import Calls, Says, chat_server
from tests.support.programs.noted_folder import home
from tests.support.programs.orga_command import ROOT, an_orga
from tests.support.runs.desk import Sale, note_down
from tests.support.values.pictures import a_png

__all__ = ["home"]

PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHORT = Critic(name="short", model="code:length", rubric={"length": Dimension(weight=1.0)})
SECRET = "sk-own-1234567890abcdef"


@tool(effect="read_only")
def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word} is a word"


@tool(effect="irreversible")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@asynccontextmanager
async def at_work(client: Client, folder: Path, agent: Agent, **parts: Any) -> AsyncGenerator[tuple[Client, str]]:
    """Yield the client and the queue of a worker with these parts."""
    plugin = OrgaPlugin(config=OrgaConfig(), agents=[agent], root=folder, **parts)
    ours = await Client.connect(client.service_client.config.target_host, plugins=[plugin])
    queue = f"parts-{uuid.uuid4()}"
    async with Worker(ours, task_queue=queue, workflows=[Sale], activities=[note_down]):
        yield ours, queue


async def events_of(client: Client, handle: AgentHandle, name: str) -> list[dict[str, Any]]:
    return [entry.data async for entry in read_journal(client, handle.id) if entry.event == name]


async def test_a_run_uses_all_of_them_and_replays(client: Client, tmp_path: Path) -> None:
    agent = Agent("default", model="code:house", tools=[look_up], critics=[SHORT])
    parts: dict[str, Any] = {
        "models": {"house": HouseModel()},
        "critics": {"length": LengthCritic()},
        "policy": OfficeHours(),
    }
    async with at_work(client, tmp_path, agent, **parts) as (ours, queue):
        handle = await start_agent(ours, "What is a lamp?", task_queue=queue)
        result = await handle.result()
        [prepared] = await events_of(ours, handle, "Prepared")
        [review] = await events_of(ours, handle, "CritiqueEvaluated")
        history = await ours.get_workflow_handle(handle.id).fetch_history()
    assert (result.output, result.usage.output_tokens) == ("lamp is a word", 32)
    assert (prepared["model"], prepared["policy"], prepared["policy_version"]) == ("code:house", "code", "1")
    assert (review["approved"], review["score"]) == (True, 1.0)
    await Replayer(workflows=[], plugins=[OrgaPlugin(config=OrgaConfig())]).replay_workflow(history)


async def test_a_critic_of_the_application_lets_the_agent_try_again(client: Client, tmp_path: Path) -> None:
    model = ScriptedModel([answers("long " * 60), answers("short")])
    agent = Agent("default", model="code:house", tools=[], critics=[SHORT])
    parts: dict[str, Any] = {"models": {"house": model}, "critics": {"length": LengthCritic()}}
    async with at_work(client, tmp_path, agent, **parts) as (ours, queue):
        handle = await start_agent(ours, "Say something.", task_queue=queue)
        assert (await handle.result()).output == "short"
        reviews = await events_of(ours, handle, "CritiqueEvaluated")
    assert [each["approved"] for each in reviews] == [False, True]
    assert "at most 200 characters" in str(model.given[-1].messages)


async def test_a_policy_of_the_application_holds_and_denies(client: Client, tmp_path: Path) -> None:
    paying = [calls("pay", cents=5), answers("paid")]
    model = ScriptedModel([*paying, *paying])
    agent = Agent("default", model="code:house", tools=[pay])
    parts: dict[str, Any] = {"models": {"house": model}}
    async with at_work(client, tmp_path, agent, policy=OfficeHours(), **parts) as (ours, queue):
        handle = await start_agent(ours, "Pay 5.", task_queue=queue)
        status = await handle.status()
        while not status.pending_approvals:
            status = await handle.status()
        await handle.approve(status.pending_approvals[0].approval_id, by="ann")
        assert (await handle.result()).output == "paid"

        closed = await start_agent(ours, {"task": "Pay 5.", "tenant": "closed"}, task_queue=queue)
        await closed.result()
        [verdict, *_] = await events_of(ours, closed, "PolicyEvaluated")
    assert "closed" in str(verdict)


class Leaks:
    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        raise RuntimeError(f"could not log in with {SECRET}")


async def test_a_failing_model_is_tried_again_and_its_secret_stays_hidden(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", SECRET)
    agent = Agent("default", model="code:house", tools=[], config=LoopConfig(timeout_s=3))
    async with at_work(client, tmp_path, agent, models={"house": Leaks()}) as (ours, queue):
        handle = await start_agent(ours, "Say something.", task_queue=queue)
        await handle.result()
        history = (await ours.get_workflow_handle(handle.id).fetch_history()).to_json()
    assert "code:house failed: RuntimeError: could not log in with" in history
    assert SECRET not in history


class Bare:
    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Any:
        return "text"


async def test_a_model_that_returns_no_reply_is_asked_once(client: Client, tmp_path: Path) -> None:
    agent = Agent("default", model="code:house", tools=[])
    async with at_work(client, tmp_path, agent, models={"house": Bare()}) as (ours, queue):
        result = await (await start_agent(ours, "Say something.", task_queue=queue)).result()
    assert result.termination.reason == "error"
    assert "it returned str, not an orga.ports.Reply" in result.termination.detail


async def test_a_worker_without_the_model_refuses_the_run(client: Client, tmp_path: Path) -> None:
    async with at_work(client, tmp_path, Agent("default", tools=[]), models={"house": HouseModel()}) as (ours, queue):
        handle = await start_agent(ours, {"task": "Say something.", "model": "code:shed"}, task_queue=queue)
        with pytest.raises(WorkflowFailureError) as caught:
            await ours.get_workflow_handle(handle.id).result()
    assert "'code:shed' was not given to this worker in code; it was given: code:house" in str(caught.value.cause)


class Looking:
    """A model that looks for a long time, so that its conversation has to be shortened."""

    def __init__(self) -> None:
        self.seen: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        self.seen.append(request)
        if len(self.seen) > 8:
            return Reply.of("done")
        call = ToolCall(
            call_id=f"c{len(self.seen)}", name="look_up", arguments={"word": f"lamp{len(self.seen)} " * 200}
        )
        return Reply.of("", [call], finish="tool_calls", usage=Usage(input_tokens=10))


class Counting(FirstLines):
    def __init__(self) -> None:
        self.messages = 0

    async def summarise(self, task: str, messages: Sequence[Message], max_bytes: int) -> str:
        self.messages += len(messages)
        return f"{task} So far {self.messages} messages."


async def test_a_summarizer_of_the_application_writes_what_replaces_old_messages(
    client: Client, tmp_path: Path
) -> None:
    model, summarizer = Looking(), Counting()
    config = LoopConfig(context_strategy="anchored_summary", context_token_budget=1_500)
    agent = Agent("default", model="code:house", tools=[look_up], config=config)
    async with at_work(client, tmp_path, agent, models={"house": model}, summarizer=summarizer) as (ours, queue):
        handle = await start_agent(ours, "What is a lamp?", task_queue=queue)
        assert (await handle.result()).output == "done"
    assert summarizer.messages > 0
    assert any(f"What is a lamp? So far {summarizer.messages} messages." in str(each.messages) for each in model.seen)


async def test_a_store_of_the_application_keeps_and_recalls(client: Client, tmp_path: Path) -> None:
    store = MemoryStore()
    await store.store([KnowledgeItem(kind="document", text="the lamp stands in the hall")])
    fact = {"subject": "the lamp", "predicate": "is", "object": "green"}
    model = ScriptedModel([calls(STORE_KNOWLEDGE, arguments=fact), answers("stored")])
    agent = Agent("default", model="code:house", tools=[STORE_KNOWLEDGE], config=LoopConfig(knowledge=RunKnowledge()))
    async with at_work(client, tmp_path, agent, models={"house": model}, knowledge=store) as (ours, queue):
        handle = await start_agent(ours, "where is the lamp", task_queue=queue)
        await handle.result()
    assert "the lamp stands in the hall" in str(model.given[0].messages)
    assert [each.item.object for each in await store.recall(Recall(text="lamp", kinds=("fact",)))] == ["green"]


@tool(effect="read_only")
def draw() -> Media:
    """Draw."""
    return Media(a_png(colour=1), "drawn.png")


async def _started(client: Client, queue: str) -> str:
    handle = await start_agent(client, "Look.", task_queue=queue, attachments=[a_png()])
    return (await handle.result()).output


async def _sent(client: Client, queue: str) -> str:
    session = await start_session(client, task_queue=queue)
    answer = await session.send("Look.", attachments=[a_png()])
    await session.close()
    return answer.output


async def _scheduled(client: Client, queue: str) -> str:
    name, day = f"daily-{uuid.uuid4()}", timedelta(days=1)
    made = await create_schedule(client, name, {"task": "Look."}, every=day, task_queue=queue, attachments=[a_png()])
    try:
        return (await AgentHandle(client, (await made.trigger()).run_id).result()).output
    finally:
        await made.delete()


async def _in_a_workflow(client: Client, queue: str) -> str:
    kept = await keep_attachments(client, [a_png()])
    name = f"sale-{uuid.uuid4()}"
    note = await client.execute_workflow(Sale.run, args=["default", "Look.", kept], id=name, task_queue=queue)
    return note.removeprefix("noted: completed: ")


@pytest.mark.parametrize("is_worker", [True, False], ids=["the worker's client", "a client without a worker"])
@pytest.mark.parametrize("starter", [_started, _sent, _scheduled, _in_a_workflow])
async def test_a_store_of_the_application_has_attachments_and_pictures_of_tools(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    starter: Callable[[Client, str], Awaitable[str]],
    is_worker: bool,
) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    store = MemoryBlobs()
    agent = Agent("default", model="openai-compatible:m", tools=[draw])
    with chat_server(Calls("draw", {}), Says(["seen"])) as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.url)
        async with at_work(client, tmp_path, agent, blobs=store) as (ours, queue):
            target = client.service_client.config.target_host
            other = await Client.connect(target, plugins=[OrgaPlugin(config=OrgaConfig(), blobs=store)])
            assert await starter(ours if is_worker else other, queue) == "seen"
        last = json.dumps(server.requests[-1]["messages"])
    assert [await store.get(digest_of(each)) for each in (a_png(), a_png(colour=1))] == [a_png(), a_png(colour=1)]
    assert all(b64encode(each).decode() in last for each in (a_png(), a_png(colour=1)))
    assert not (tmp_path / "home" / "blobs").exists()


async def test_two_different_stores_of_one_connection_are_refused(client: Client) -> None:
    plugins = [OrgaPlugin(config=OrgaConfig(), blobs=MemoryBlobs()) for _ in range(2)]
    with pytest.raises(ConfigError, match="another plugin of this connection has a different store"):
        await Client.connect(client.service_client.config.target_host, plugins=plugins)


def test_the_guide_shows_the_example_which_answers(client: Client, tmp_path: Path, home: Path) -> None:
    here = an_orga(Path(shutil.copytree(ROOT / "examples" / "parts", tmp_path / "parts")), home)
    code = "\n".join(file.read_text() for file in sorted(here.folder.glob("*.py")))
    shown = PYTHON.findall((ROOT / "docs" / "own-parts.md").read_text())
    assert [block for block in shown if block not in code and "check_" not in block] == []
    assert len(shown) == 8
    (here.folder / "checks.py").write_text(
        f"import asyncio\n{shown[-1]}\nasyncio.run(test_our_parts())\nprint('passed')"
    )
    for arguments, printed in (
        (["app.py", "What is a lamp?"], "A lamp is a source of light."),
        (["checks.py"], "passed"),
    ):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=here.folder,
            env={**here.env, "TEMPORAL_ADDRESS": client.service_client.config.target_host},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.stdout.strip() == printed, done.stderr
