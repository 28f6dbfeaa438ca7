"""Asking many runs for their status: at the same time, and not where no worker is there to answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.client import Client

from orga.client.errors import OrgaError
from orga.client.runs.agents import AgentHandle
from orga.client.server.pollers import may_be_polled
from orga.workflows.types.status import AgentStatus

AT_ONCE = 10


@dataclass(frozen=True)
class Asked:
    """A run to ask."""

    id: str
    task_queue: str


class Asking:
    """Looks once at each task queue whether a worker polls it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._polled: dict[str, bool] = {}

    async def statuses(self, runs: Sequence[Asked]) -> list[AgentStatus | None]:
        """Return the status of each run, in order; None where there is no answer."""
        for queue in {run.task_queue for run in runs} - self._polled.keys():
            self._polled[queue] = await may_be_polled(self._client, queue)
        found: list[AgentStatus | None] = []
        for start in range(0, len(runs), AT_ONCE):
            found += await asyncio.gather(*map(self._status, runs[start : start + AT_ONCE]))
        return found

    async def _status(self, run: Asked) -> AgentStatus | None:
        if not self._polled[run.task_queue]:
            return None
        try:
            return await AgentHandle(self._client, run.id).status()
        except OrgaError:
            return None
