"""Runs the loop on a real server with scripted ports. Each run replays its own history at the end."""

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import WorkflowTaskFailedEventAttributes
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker, WorkflowRunner

from orga.activities.adapters.agents.agents import NO_PIPELINES, ConfiguredAgents
from orga.activities.adapters.knowledge.knowledge_tools import RecallKnowledge, StoreKnowledge
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.deliver import DeliveryChannel
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import BlobStore, ModelProvider, Notifier, PolicyEngine, Tool
from orga.client.history.values import converters_in, data_converter
from orga.client.journal.laws import law_faults
from orga.client.journal.reading import read_journal
from orga.client.proof.gate_record import GateRecord, breaches
from orga.client.runners.workflows import WORKFLOWS, ObservedRunner
from orga.client.testing.script import ScriptedModels, Step
from orga.client.workers.parts import Parts
from orga.testing import ScriptedModel
from orga.worker import build_worker
from orga.workflows.decisions.journal.entries import first_break
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.setup import Setup
from orga.workflows.types.status import AgentResult, JournalEntry
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.values.planted import around_marks
from tests.support.values.policies import a_verdict

EXECUTION_TIMEOUT = timedelta(seconds=60)
NO_DELIVERIES: Mapping[str, DeliveryChannel] = {}
WORKER_FACTS = Setup(agent="", model="", search_attributes=False)


class Deny:
    """A policy engine that denies these tools, and final answers that contain one of these words."""

    is_embedded = True

    def __init__(self, *tools: str, words: Sequence[str] = ()) -> None:
        self._tools = tools
        self._words = words

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Deny what is listed."""
        if proposal.call is not None:
            return a_verdict(proposal.call.name not in self._tools, f"{proposal.call.name} is forbidden")
        return a_verdict(not any(word in (proposal.answer or "") for word in self._words), "such words are forbidden")


@dataclass
class Loop:
    """A worker with scripted ports on its own task queue."""

    client: Client
    task_queue: str
    provider: ModelProvider
    execution_timeout: timedelta = EXECUTION_TIMEOUT

    async def start(self, task: str | dict[str, Any] = "do it", **config: Any) -> WorkflowHandle[Any, Any]:
        """Start a run; `config` are keys of its LoopConfig."""
        given = {"task": task} if isinstance(task, str) else task
        return await self.client.start_workflow(
            "AgentWorkflow",
            {**given, **({"config": config} if config else {})},
            id=f"agent-{uuid.uuid4()}",
            task_queue=self.task_queue,
            execution_timeout=self.execution_timeout,
        )

    async def run(self, task: str | dict[str, Any] = "do it", **config: Any) -> "Ran":
        """Start a run and wait for its end."""
        return await self.ended(await self.start(task, **config))

    async def ended(self, handle: WorkflowHandle[Any, Any]) -> "Ran":
        """Wait for the end, replay the histories of all segments, and read the journal."""
        raw = await handle.result()
        histories = await histories_of(self.client, handle.id)
        for history in histories:
            check_tasks(history)
            await check_replay(history)
        journal = [entry async for entry in read_journal(self.client, handle.id)]
        check_journal(journal)
        return Ran(AgentResult.model_validate(raw), journal, histories, handle, raw)


@dataclass(frozen=True)
class Ran:
    """The outside view of a finished run."""

    result: AgentResult
    journal: list[JournalEntry]
    histories: list[WorkflowHistory]
    """The histories of all segments, oldest first."""
    handle: WorkflowHandle[Any, Any]
    raw: Any
    """The result as plain JSON."""

    @property
    def history(self) -> WorkflowHistory:
        """The history of the last segment."""
        return self.histories[-1]

    @property
    def events(self) -> list[str]:
        """The names of the journal's events."""
        return [entry.event for entry in self.journal]


@asynccontextmanager
async def a_loop(
    client: Client,
    steps: Sequence[Step] | ModelProvider,
    *tools: Tool,
    engine: PolicyEngine | None = None,
    setup: Setup = WORKER_FACTS,
    check_model: Callable[[str], None] = lambda model: None,
    task_queue: str | None = None,
    **worker_options: Any,
) -> AsyncGenerator[Loop]:
    """Run a worker whose model follows `steps` and whose default agent lists `tools`."""
    provider = ScriptedModel(steps, repeats=True) if isinstance(steps, Sequence) else steps
    loop = Loop(client, task_queue or f"test-{uuid.uuid4()}", provider)
    async with a_worker(loop, *tools, engine=engine, setup=setup, check_model=check_model, **worker_options):
        yield loop


def a_worker(
    loop: Loop,
    *tools: Tool,
    engine: PolicyEngine | None = None,
    setup: Setup = WORKER_FACTS,
    check_model: Callable[[str], None] = lambda model: None,
    agents: Mapping[str, AgentConfig] | None = None,
    notifier: Notifier | None = None,
    deliveries: Mapping[str, DeliveryChannel] = NO_DELIVERIES,
    knowledge: KnowledgeStore | None = None,
    pipelines: Mapping[str, Pipeline] = NO_PIPELINES,
    blobs: BlobStore | None = None,
    **worker_options: Any,
) -> Worker:
    """Return a worker for the loop's task queue. A run may start before it, or with another worker.

    `agents` are added to the default one, or replace it.
    """
    parts = parts_of(
        loop,
        *tools,
        engine=engine,
        setup=setup,
        check_model=check_model,
        agents=agents,
        notifier=notifier,
        deliveries=deliveries,
        knowledge=knowledge,
        pipelines=pipelines,
        blobs=blobs,
    )
    return build_worker(loop.client, parts, loop.task_queue, **worker_options)


def parts_of(
    loop: Loop,
    *tools: Tool,
    engine: PolicyEngine | None = None,
    setup: Setup = WORKER_FACTS,
    check_model: Callable[[str], None] = lambda model: None,
    agents: Mapping[str, AgentConfig] | None = None,
    notifier: Notifier | None = None,
    deliveries: Mapping[str, DeliveryChannel] = NO_DELIVERIES,
    pipelines: Mapping[str, Pipeline] = NO_PIPELINES,
    listed: Sequence[str] = (),
    knowledge: KnowledgeStore | None = None,
    blobs: BlobStore | None = None,
) -> Parts:
    """Return the parts of a worker of the loop. The default agent lists its tools, and also the tools in `listed`."""
    own: list[Tool] = [] if knowledge is None else [RecallKnowledge(knowledge), StoreKnowledge(knowledge)]
    return Parts(
        agents=ConfiguredAgents(
            {"default": AgentConfig(tools=(*(tool.spec.name for tool in tools), *listed)), **(agents or {})},
            {tool.spec.name: tool.spec for tool in (*tools, *own)},
            "scripted:model",
            check_model,
            setup,
            pipelines=pipelines,
        ),
        models=ScriptedModels(loop.provider),
        policy=engine or ListedTools(),
        argument_errors=find_argument_errors,
        tools=[*tools, *own],
        notifier=notifier,
        deliveries=deliveries,
        knowledge=knowledge,
        blobs=blobs,
    )


async def histories_of(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """Return the histories of all segments, oldest first."""
    histories: list[WorkflowHistory] = []
    run_id: str | None = None
    while run_id != "":
        history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        histories.insert(0, history)
        run_id = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return histories


def _is_late_answer(failed: WorkflowTaskFailedEventAttributes) -> bool:
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_UPDATE_WORKFLOW_EXECUTION_MESSAGE
    return failed.cause == cause and failed.failure.message.endswith("while in state Completed")


def check_tasks(history: WorkflowHistory) -> None:
    """Assert that no workflow task failed.

    Three kinds are not the run's fault, and the next attempt succeeds:

    - a completion that lost against a new signal
    - the task after one that timed out: the worker's completion comes too late once, and the worker starts again
    - a late answer to an update that the SDK left out of its task (`UNPROCESSED` of `client/runs/exchange.py`): the
      server has ended that update by then
    """
    faults, is_after_timeout = list[str](), False
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
            is_after_timeout = True
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            is_after_timeout = False
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED and not is_after_timeout:
            failed = event.workflow_task_failed_event_attributes
            is_lost_race = failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
            if not is_lost_race and not _is_late_answer(failed):
                faults.append(f"{WorkflowTaskFailedCause.Name(failed.cause)}: {failed.failure.message}")
    assert not faults, "\n".join(faults)


async def check_replay(history: WorkflowHistory, inner: WorkflowRunner | None = None) -> None:
    """Replay a history with today's code. The gate allowed all its calls, and it contains no planted secret.

    The replay uses no sandbox, like workers, unless `inner` is one.
    """
    marks = [found for event in history.events if (found := around_marks(event.SerializeToString()))]
    assert not marks, marks
    record = GateRecord(data_converter.payload_converter)
    runner = ObservedRunner(inner or UnsandboxedWorkflowRunner(), record.observe)
    replayer = Replayer(workflows=WORKFLOWS, data_converter=data_converter, unsandboxed_workflow_runner=runner)
    await replayer.replay_workflow(history)
    assert await breaches(history, record, converters_in(history, data_converter, "default")) == []


def check_journal(journal: list[JournalEntry]) -> None:
    """Assert what holds for every journal: first entry, last entry, order and chain.

    Nested runs have their own ends.
    """
    assert journal[0].event == "Started"
    assert [entry.event for entry in journal if "run" not in entry.data].count("Terminated") == 1
    assert journal[-1].event == "Terminated"
    assert [entry.sequence for entry in journal] == list(range(len(journal)))
    assert first_break(journal) is None
    assert law_faults(journal) == []
