"""A worker process that kills itself, as by `kill -9`, at a moment that is named.

Its model knows nothing but the conversation it is given, so another process goes on where this one was cut off.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Timer
from typing import ParamSpec, TypeVar

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import Client

from activities.adapters.agents import ConfiguredAgents
from activities.adapters.arguments import argument_errors
from activities.ports import Judgement, ModelRequest, Proposal, ToolContext
from client.converter import data_converter
from tests.support.loop import WORKER_FACTS, FakeTool
from tests.support.scripted import ScriptedModels, answers, calls
from worker import Parts, build_worker
from workflows.types.agents import AgentConfig
from workflows.types.delegation import Delegate
from workflows.types.messages import Reply
from workflows.types.tools import Effect, ToolOptions

P = ParamSpec("P")
T = TypeVar("T")

HALF_CALL_S = 0.15
STICKY_S = timedelta(seconds=1)
"""How soon the server gives a workflow task to another worker when this one does not come for it."""

TOOLS: dict[str, tuple[Effect, ToolOptions]] = {
    "look": ("read_only", ToolOptions(heartbeat_timeout_s=5)),
    "note": ("idempotent", ToolOptions(heartbeat_timeout_s=5)),
    "send": ("irreversible", ToolOptions()),
}


@dataclass(frozen=True)
class Fate:
    """When a worker dies: at a moment by name, or some seconds after a tool's effect; by default never."""

    moment: str = ""
    after_s: float | None = None

    def reached(self, moment: str) -> None:
        """Die here when this is the moment."""
        if moment == self.moment:
            _die()

    def had_effect(self) -> None:
        """Die some time later, if that is how."""
        if self.after_s is not None:
            Timer(self.after_s, _die).start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class CrashWorker:
    """What a process needs to know."""

    address: str
    task_queue: str
    effects: Path
    """Gets one line for each effect of a tool: the tool and the idempotency key."""
    roll_over_events: int
    fate: Fate

    def started(self) -> BaseProcess:
        """Start a process of its own, forked from one that has the imports done and nothing else."""
        context = get_context("forkserver")
        context.set_forkserver_preload(["__main__", __name__])
        process = context.Process(target=self._run, daemon=True)
        process.start()
        return process

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        client = await Client.connect(self.address, data_converter=data_converter)
        worker = build_worker(
            client,
            self._parts(),
            self.task_queue,
            workflow_task_executor=_WatchedTasks(self.fate, self.effects),
            sticky_queue_schedule_to_start_timeout=STICKY_S,
        )
        await worker.run()

    def _parts(self) -> Parts:
        tools = [self._tool(name, effect, options) for name, (effect, options) in TOOLS.items()]
        agents = ConfiguredAgents(
            {
                "default": AgentConfig(tools=tuple(TOOLS), delegates=(Delegate(agent="helper"),)),
                "helper": AgentConfig(tools=tuple(TOOLS)),
            },
            {tool.name: tool.spec for tool in tools},
            "scripted:model",
            lambda model: self.fate.reached("prepare"),
            WORKER_FACTS.model_copy(update={"roll_over_events": self.roll_over_events}),
        )
        return Parts(agents, ScriptedModels(_PlannedModel(self.fate)), _Policy(self.fate), argument_errors, tools)

    def _tool(self, name: str, effect: Effect, options: ToolOptions) -> FakeTool:
        return FakeTool(name, lambda arguments, context: self._call(name, context), effect, options=options)

    async def _call(self, name: str, context: ToolContext) -> str:
        await asyncio.sleep(HALF_CALL_S)
        with self.effects.open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        self.fate.had_effect()
        self.fate.reached(name)
        await asyncio.sleep(HALF_CALL_S)
        return f"{name} is done"


@dataclass(frozen=True)
class _PlannedModel:
    """Calls the tools that the task names, one a turn, then answers with what they returned.

    `helper:look+send` delegates the task `look send` to that agent.
    """

    fate: Fate

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        plan = request.messages[0].text.split()
        told = [message.text for message in request.messages if message.role == "tool"]
        self.fate.reached(f"model call {len(told) + 1}")
        return _called(plan[len(told)]) if len(told) < len(plan) else answers("\n".join(told))


def _called(word: str) -> Reply:
    agent, _, task = word.rpartition(":")
    return calls("delegate", arguments={"agent": agent, "task": task.replace("+", " ")}) if agent else calls(task)


@dataclass(frozen=True)
class _Policy:
    """Allows everything."""

    fate: Fate

    async def judge(self, proposal: Proposal) -> Judgement:
        self.fate.reached(f"gate {proposal.iteration}")
        return Judgement(True)


class _WatchedTasks(ThreadPoolExecutor):
    """Runs workflow tasks; what a task brings is a moment before any workflow code has seen it."""

    def __init__(self, fate: Fate, effects: Path) -> None:
        super().__init__()
        self._fate = fate
        self._effects = effects

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        for argument in args:
            if isinstance(argument, WorkflowActivation):
                for moment in self._moments(argument):
                    self._fate.reached(moment)
        return super().submit(fn, *args, **kwargs)

    def _moments(self, task: WorkflowActivation) -> Iterator[str]:
        for job in task.jobs:
            if job.HasField("initialize_workflow"):
                yield "continued as new" if job.initialize_workflow.continued_from_execution_run_id else "first task"
            if job.HasField("resolve_activity") and self._effects.exists():
                yield f"after {self._effects.read_text().splitlines()[-1].split()[0]}"
