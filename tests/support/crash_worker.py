"""A worker process that kills itself, as by `kill -9`: at the moment that `CRASH_AT` names, or `CRASH_AFTER_S` seconds
after its first tool had its effect; without either it lives on.

Its model knows nothing but the conversation it is given, so another process goes on where this one was cut off.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import Any, ParamSpec, TypeVar

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
from workflows.types.messages import Reply
from workflows.types.tools import Effect, ToolOptions

P = ParamSpec("P")
T = TypeVar("T")

EFFECTS = Path(os.environ["CRASH_EFFECTS"])
"""One line a tool's effect: the tool and the idempotency key."""

HALF_CALL_S = 0.15
STICKY_S = timedelta(seconds=1)
"""How soon the server gives a workflow task to another worker when this one does not come for it."""

EFFECT_OF: dict[str, Effect] = {"look": "read_only", "note": "idempotent", "send": "irreversible"}
HEARTBEAT_S: dict[Effect, float | None] = {"read_only": 5.0, "idempotent": 5.0, "irreversible": None}


def reached(moment: str) -> None:
    """Die here when this is the moment to die at."""
    if moment == os.environ.get("CRASH_AT"):
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_soon() -> None:
    if delay := os.environ.get("CRASH_AFTER_S"):
        Timer(float(delay), _die).start()


class PlannedModel:
    """Calls the tools that the task names, one a turn, then answers with what they returned."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return what comes next in this conversation."""
        plan = request.messages[0].text.split()
        told = [message.text for message in request.messages if message.role == "tool"]
        reached(f"model call {len(told) + 1}")
        return calls(plan[len(told)]) if len(told) < len(plan) else answers("\n".join(told))


class MortalPolicy:
    """Allows everything."""

    async def judge(self, proposal: Proposal) -> Judgement:
        """Allow it, if the process lives that long."""
        reached(f"gate {proposal.iteration}")
        return Judgement(True)


class WatchedTasks(ThreadPoolExecutor):
    """Runs workflow tasks; what a task brings is a moment before any workflow code has seen it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run one task."""
        for argument in args:
            if isinstance(argument, WorkflowActivation):
                for moment in _moments(argument):
                    reached(moment)
        return super().submit(fn, *args, **kwargs)


def _moments(task: WorkflowActivation) -> Iterator[str]:
    for job in task.jobs:
        if job.HasField("initialize_workflow"):
            yield "continued as new" if job.initialize_workflow.continued_from_execution_run_id else "first task"
        if job.HasField("resolve_activity") and EFFECTS.exists():
            yield f"after {EFFECTS.read_text().splitlines()[-1].split()[0]}"


def _a_tool(name: str, effect: Effect) -> FakeTool:
    async def call(context: ToolContext) -> str:
        await asyncio.sleep(HALF_CALL_S)
        with EFFECTS.open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        _die_soon()
        reached(name)
        await asyncio.sleep(HALF_CALL_S)
        return f"{name} is done"

    options = ToolOptions(heartbeat_timeout_s=HEARTBEAT_S[effect])
    return FakeTool(name, lambda arguments, context: call(context), effect, options=options)


def _parts() -> Parts:
    tools = [_a_tool(name, effect) for name, effect in EFFECT_OF.items()]
    facts: dict[str, Any] = {"roll_over_events": int(os.environ["CRASH_ROLL_OVER_EVENTS"])}
    agents = ConfiguredAgents(
        {"default": AgentConfig(tools=tuple(EFFECT_OF))},
        {tool.name: tool.spec for tool in tools},
        "scripted:model",
        lambda model: reached("prepare"),
        WORKER_FACTS.model_copy(update=facts),
    )
    return Parts(agents, ScriptedModels(PlannedModel()), MortalPolicy(), argument_errors, tools)


async def main() -> None:
    """Work until killed."""
    client = await Client.connect(os.environ["CRASH_ADDRESS"], data_converter=data_converter)
    with WatchedTasks() as tasks:
        worker = build_worker(
            client,
            _parts(),
            os.environ["CRASH_TASK_QUEUE"],
            workflow_task_executor=tasks,
            sticky_queue_schedule_to_start_timeout=STICKY_S,
        )
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
