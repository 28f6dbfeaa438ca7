"""The rig: one real server with a worker of ours and one of the floor, and runs of both."""

import uuid
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from bench.sides.floor import Floor, FloorActivities
from bench.sides.ours import our_input, our_worker
from bench.sides.script import RESULT, Script
from orga.client.history.values import data_converter
from orga.client.runners.workflows import our_runner
from orga.client.server.obtain import locate
from orga.client.server.search_attributes import KEYS
from orga.workflows.agent import AgentWorkflow
from orga.workflows.types.names import TASK_QUEUE

SERVER_ARGUMENTS = [
    "--dynamic-config-value",
    "history.transferProcessorMaxPollRPS=10000",
    "--dynamic-config-value",
    "system.enableActivityEagerExecution=true",
]

OURS_QUEUE, FLOOR_QUEUE = TASK_QUEUE, "bare"
"""Names of the same length, because they are part of four events per iteration."""


@dataclass(frozen=True)
class Side:
    """One side of the comparison: how its runs are started and replayed."""

    name: str
    client: Client
    workflow: str
    task_queue: str
    arguments: Callable[[int], list[Any]]
    replayer: Callable[[ThreadPoolExecutor | None], Replayer]
    """Takes the executor of the workflow tasks."""

    def on(self, task_queue: str) -> "Side":
        """Return the same side with a worker of another task queue."""
        return replace(self, task_queue=task_queue)

    async def run(self, iterations: int) -> WorkflowHandle[Any, Any]:
        """Run this number of iterations to the end."""
        handle = await self.client.start_workflow(
            self.workflow,
            args=self.arguments(iterations),
            id=f"{self.name}-{uuid.uuid4()}",
            task_queue=self.task_queue,
            result_type=dict if self.name == "ours" else str,
        )
        await handle.result()
        return handle


@dataclass(frozen=True)
class Rig:
    """All sides, warm."""

    address: str
    ours: Side
    floor: Side
    phased: Side
    """The floor with the same activities as ours."""


@asynccontextmanager
async def rig() -> AsyncGenerator[Rig]:
    """Start the server and both workers, and run each side once, so that everything is warm."""
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=str(await locate(print)),
        data_converter=data_converter,
        search_attributes=KEYS,
        dev_server_extra_args=SERVER_ARGUMENTS,
    ) as environment:
        client = environment.client
        address = client.service_client.config.target_host
        floor_client = await Client.connect(address, data_converter=pydantic_data_converter)
        ours, floor, phased = _our_side(client), _floor_side(floor_client), _floor_side(floor_client, phases=True)
        async with our_worker(client, OURS_QUEUE, Script()), _floor_worker(floor_client):
            for side in (ours, floor, phased):
                await side.run(50)
            yield Rig(address, ours, floor, phased)


def _our_side(client: Client) -> Side:
    return Side(
        "ours",
        client,
        "AgentWorkflow",
        OURS_QUEUE,
        lambda iterations: [our_input(iterations)],
        lambda tasks: Replayer(
            workflows=[AgentWorkflow],
            workflow_task_executor=tasks,
            data_converter=data_converter,
            unsandboxed_workflow_runner=our_runner(),
        ),
    )


def _floor_side(client: Client, phases: bool = False) -> Side:
    digest = sha256(b"tools").hexdigest()
    return Side(
        "phased" if phases else "floor",
        client,
        "Floor",
        FLOOR_QUEUE,
        lambda iterations: [iterations, digest, phases],
        lambda tasks: Replayer(workflows=[Floor], workflow_task_executor=tasks, data_converter=pydantic_data_converter),
    )


def _floor_worker(client: Client) -> Worker:
    script = Script()
    activities = FloorActivities(lambda: script.reply().model_dump(mode="json", exclude_unset=True), RESULT)
    names = [activities.model, activities.read_file, activities.prepare, activities.gate]
    return Worker(client, task_queue=FLOOR_QUEUE, workflows=[Floor], activities=names)
