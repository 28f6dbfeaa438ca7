"""Metrics of runs that wait for people: their number, and the age of the oldest. They come from visibility alone."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from opentelemetry.metrics import CallbackOptions, Observation, get_meter
from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.runs.inbox import WAITING_RUNS
from orga.client.server.server_errors import error_reason, is_unsupported
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.names import WAITING, WAITING_SINCE

REFRESH_INTERVAL_S = 30.0
MAX_RUNS = 10_000
"""Runs that are counted. The metrics stop there."""

_log = logging.getLogger(__name__)


@dataclass
class _WaitingRuns:
    runs: int = 0
    oldest: datetime | None = None

    def add(self, since: datetime | None) -> None:
        self.runs += 1
        if since is not None:
            self.oldest = min(self.oldest or since, since)


class WaitingMetrics:
    """The gauges of one worker, with the values of the last visibility query."""

    def __init__(self) -> None:
        self._known: dict[str, _WaitingRuns] = {}
        meter = get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)
        meter.create_observable_gauge(
            names.WAITING_RUNS, [self._runs], unit="{run}", description="Runs that wait for a person, by kind"
        )
        meter.create_observable_gauge(
            names.WAITING_AGE, [self._ages], unit="s", description="How long the oldest of them has waited, by kind"
        )

    async def refresh(self, client: Client) -> None:
        """Query visibility. Each kind that was seen before keeps a value, 0 if none is left.

        Raises:
            RPCError: The server does not list runs.
        """
        found = {kind: _WaitingRuns() for kind in self._known}
        async for run in client.list_workflows(WAITING_RUNS, limit=MAX_RUNS):
            kind = run.typed_search_attributes.get(WAITING) or ""
            found.setdefault(kind, _WaitingRuns()).add(run.typed_search_attributes.get(WAITING_SINCE))
        self._known = found

    def _runs(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.runs, {names.WAIT_KIND: kind}) for kind, each in self._known.items()]

    def _ages(self, options: CallbackOptions) -> Iterable[Observation]:
        now = datetime.now(UTC)
        return [
            Observation(max((now - each.oldest).total_seconds(), 0.0) if each.oldest else 0.0, {names.WAIT_KIND: kind})
            for kind, each in self._known.items()
        ]


@asynccontextmanager
async def waiting_metrics(client: Client, *, every_s: float = REFRESH_INTERVAL_S) -> AsyncGenerator[None]:
    """Keep the gauges up to date during the block. If the server does not answer, log a warning."""
    metrics = WaitingMetrics()

    async def watch() -> None:
        while True:
            try:
                await metrics.refresh(client)
            except RPCError as error:
                _log.warning("the server does not list what waits for people: %s", error_reason(error))
                if is_unsupported(error):
                    return
            await asyncio.sleep(every_s)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
