"""The model gets the whole conversation by reference: a small input and the right messages, on any worker."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory

from orga.activities.models.conversations import Conversations
from orga.activities.ports import HistorySource, ModelRequest, RunKey
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.status import ShownMessage
from orga.workflows.types.tool_calls.tools import ToolOutput
from tests.support.hold import Hold
from tests.support.runs.loop import Loop, Ran, a_loop, a_worker

WIDE: dict[str, Any] = {"context_token_budget": 1_000_000, "max_total_tokens": 1_000_000, "max_iterations": 1_000}


def looks(times: int) -> list[Reply | Exception | Callable[[ModelRequest], Any]]:
    """Return a script of this many calls, each with other arguments and some text, then an answer."""
    return [*(calls("look", arguments={"n": n}, reply_text=f"step {n}") for n in range(times)), answers("done")]


def pages(size: int) -> FakeTool:
    return FakeTool("look", lambda arguments, context: f"page {arguments['n']} " + "x" * size)


def scheduled(history: WorkflowHistory, name: str) -> list[HistoryEvent]:
    attributes = "activity_task_scheduled_event_attributes"
    return [
        event
        for event in history.events
        if event.HasField(attributes) and event.activity_task_scheduled_event_attributes.activity_type.name == name
    ]


async def test_the_input_of_a_model_call_stays_constant_and_the_history_grows_linearly(client: Client) -> None:
    async with a_loop(client, looks(60), pages(2_000)) as loop:
        ran = await loop.run(**WIDE)

    asked = scheduled(ran.history, "reason")
    sizes = [event.activity_task_scheduled_event_attributes.input.ByteSize() for event in asked]
    assert len(sizes) == 61
    assert max(sizes[1:]) - min(sizes[1:]) <= 5  # iterations and ids have up to two digits
    assert max(sizes[1:]) < 300
    at_30, at_60 = bytes_until(ran.history, asked[30]), bytes_until(ran.history, asked[60])
    assert at_60 / at_30 <= 2.05


def bytes_until(history: WorkflowHistory, event: HistoryEvent) -> int:
    return sum(earlier.ByteSize() for earlier in history.events if earlier.event_id < event.event_id)


def check_what_the_model_saw(provider: ScriptedModel, conversation: list[ShownMessage]) -> None:
    """Assert that each call saw exactly the conversation up to it."""
    shown = [message for message in conversation if message.role != "system"]
    for request in provider.seen:
        seen = [shown_as(message) for message in request.messages]
        assert seen == shown[: len(seen)]
    assert len(provider.seen[-1].messages) == len(shown) - 1


def shown_as(message: Message) -> ShownMessage:
    fields = {name: getattr(message, name) for name in ShownMessage.model_fields}
    return ShownMessage(**fields)


async def conversation_of(ran: Ran) -> list[ShownMessage]:
    return [ShownMessage.model_validate(message) for message in await ran.handle.query("conversation")]


async def test_the_conversation_query_shows_what_the_model_saw(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel(
        [*looks(3)[:-1], calls("nothing", "look"), hold.step(calls("look")), answers("done")], repeats=True
    )
    async with a_loop(client, provider, FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", "left")
        await handle.signal("add_context", "right")
        hold.go.set()
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)

    check_what_the_model_saw(provider, shown)
    assert shown[0].role == "system"
    assert [message.text for message in shown[-3:]] == [
        "[Guidance from the operator] left",
        "[Context from the operator]\nright",
        "done",
    ]


class Made:
    """Makes and keeps the conversations of each worker, of a given class and cache size."""

    def __init__(self, kind: type[Conversations] = Conversations, max_bytes: int = 128_000_000) -> None:
        self._kind = kind
        self._max_bytes = max_bytes
        self.all: list[Conversations] = []

    def __call__(self, history: HistorySource) -> Conversations:
        self.all.append(self._kind(history, self._max_bytes))
        return self.all[-1]

    @property
    def misses(self) -> list[int]:
        return [made.misses for made in self.all]


async def test_two_workers_with_tiny_caches_send_the_same_messages(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request is rebuilt from the history, by whichever worker takes it."""
    made = Made(max_bytes=100)
    monkeypatch.setattr("orga.client.workers.registrations.Conversations", made)
    provider, tool = ScriptedModel(looks(12), repeats=True), pages(500)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    other = await Client.connect(client.service_client.config.target_host, data_converter=client.data_converter)
    # Without eager activities and a sticky queue the server hands each task to either worker.
    options: dict[str, Any] = {"max_cached_workflows": 0, "disable_eager_activity_execution": True}
    async with a_worker(loop, tool, **options), a_worker(replace(loop, client=other), tool, **options):
        ran = await loop.run(**WIDE)
        shown = await conversation_of(ran)

    check_what_the_model_saw(provider, shown)
    assert (ran.result.termination.reason, len(provider.seen), sum(made.misses)) == ("completed", 13, 13)


async def test_a_new_worker_reads_the_history_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    monkeypatch.setattr("orga.client.workers.registrations.Conversations", made)
    hold, tool = Hold(), pages(500)
    script = looks(6)
    provider = ScriptedModel([*script[:3], hold.step(calls("look", arguments={"n": 3})), *script[3:]], repeats=True)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    async with a_worker(loop, tool):
        handle = await loop.start(**WIDE)
        await hold.reached()
    hold.go.set()
    async with a_worker(loop, tool):
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)

    check_what_the_model_saw(provider, shown)
    assert (ran.result.termination.reason, made.misses) == ("completed", [0, 1])


class ForgedResults(Conversations):
    """Remembers another result than the one in the history."""

    def keep_result(self, run: RunKey, activity_id: str, output: ToolOutput | str) -> None:
        super().keep_result(run, activity_id, "forged")


class ForgedReplies(Conversations):
    """Remembers another reply than the one in the history."""

    def keep_reply(self, run: RunKey, iteration: int, reply: Reply) -> None:
        super().keep_reply(run, iteration, Reply.of("forged", reply.calls))


class MixedUpRuns(Conversations):
    """Remembers everything under the wrong run."""

    def keep_result(self, run: RunKey, activity_id: str, output: ToolOutput | str) -> None:
        super().keep_result(RunKey("x", "x"), activity_id, output)

    def keep_reply(self, run: RunKey, iteration: int, reply: Reply) -> None:
        super().keep_reply(RunKey("x", "x"), iteration, reply)


@pytest.mark.parametrize("kind", [ForgedResults, ForgedReplies, MixedUpRuns])
async def test_a_wrong_cache_cannot_send_a_wrong_context(
    client: Client, monkeypatch: pytest.MonkeyPatch, kind: type[Conversations]
) -> None:
    """The cached text is checked against its digest, and rebuilt from the history if it does not match."""
    made = Made(kind)
    monkeypatch.setattr("orga.client.workers.registrations.Conversations", made)
    provider = ScriptedModel(looks(4), repeats=True)
    async with a_loop(client, provider, pages(100)) as loop:
        ran = await loop.run(**WIDE)
        shown = await conversation_of(ran)

    check_what_the_model_saw(provider, shown)
    assert "forged" not in {message.text for request in provider.seen for message in request.messages}
    assert (ran.result.termination.reason, made.misses) == ("completed", [4])


async def test_concurrent_runs_do_not_mix(client: Client) -> None:
    """The runs have the same agent, call ids and iterations. Only the task differs."""

    def step(request: ModelRequest) -> Reply:
        task, done = request.messages[0].text, sum(m.role == "tool" for m in request.messages)
        results = {m.text.split()[0] for m in request.messages if m.role == "tool"}
        assert results <= {task}, results
        return answers(task) if done == 5 else calls("look", arguments={"task": task})

    tool = FakeTool("look", lambda arguments, context: f"{arguments['task']} result")
    async with a_loop(client, [step], tool) as loop:
        tasks = [f"task-{number}" for number in range(8)]
        rans = await asyncio.gather(*[loop.run(task) for task in tasks])

    assert [ran.result.output for ran in rans] == tasks
