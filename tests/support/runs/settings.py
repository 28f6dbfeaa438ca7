"""A worker whose configuration people change at run time, on its own task queue."""

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion

from orga.activities.ports import ModelProvider
from orga.client.config.sections import OrgaConfig
from orga.client.runs.settings import RecordedSettings, read_settings, save_settings
from orga.client.server.pollers import may_be_polled
from orga.client.testing.script import ScriptedModels
from orga.client.workers.parts import StandIns, configured_parts
from orga.worker import build_worker
from orga.workflows.types.settings import settings_id
from tests.support.hold import wait_until
from tests.support.runs.loop import Loop, check_replay, check_tasks, histories_of


@dataclass(frozen=True)
class Desk:
    """A loop whose settings are changed."""

    loop: Loop

    @property
    def queue(self) -> str:
        """The worker's task queue."""
        return self.loop.task_queue

    async def read(self) -> RecordedSettings:
        """Return the current settings."""
        return await read_settings(self.loop.client, self.queue)

    async def save(self, values: Mapping[str, Any], *, by: str = "ann", version: int | None = None) -> int:
        """Save settings that are based on this version, by default on the current one."""
        made_from = (await self.read()).version if version is None else version
        return await save_settings(self.loop.client, values, version=made_from, by=by, task_queue=self.queue)

    async def check_history(self) -> int:
        """Replay all segments of the settings workflow, and return their number."""
        histories = await histories_of(self.loop.client, settings_id(self.queue))
        for history in histories:
            check_tasks(history)
            await check_replay(history)
        return len(histories)


@asynccontextmanager
async def a_desk(
    client: Client,
    model: ModelProvider,
    folder: Path,
    config: OrgaConfig | None = None,
    *,
    queue: str = "",
    version: WorkerDeploymentVersion | None = None,
) -> AsyncGenerator[Desk]:
    """Run a worker of the configuration."""
    parts = configured_parts(
        config or OrgaConfig(),
        {},
        folder,
        knows_attributes=False,
        stand_ins=StandIns(ScriptedModels(model)),
        client=client,
    )
    desk = Desk(Loop(client, queue or f"test-{uuid.uuid4()}", model))
    async with build_worker(client, parts, desk.queue, version=version):
        await wait_until(lambda: may_be_polled(client, desk.queue))
        yield desk
