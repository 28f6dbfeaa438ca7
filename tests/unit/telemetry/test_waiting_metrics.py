"""Gauges of what waits for people, from visibility, with 0 once nothing is left."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from orga.client.telemetry.export import WaitingMetrics, waiting_metrics
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.names import WAITING, WAITING_SINCE
from tests.support.web.telemetry import fresh_globals

__all__ = ["fresh_globals"]


@dataclass
class Run:
    typed_search_attributes: TypedSearchAttributes


@dataclass
class Visibility:
    """Lists these runs."""

    runs: list[Run] = field(default_factory=list[Run])

    async def list_workflows(self, query: str, limit: int) -> AsyncGenerator[Run]:
        for run in self.runs[:limit]:
            yield run


def waits(kind: str, ago_s: float | None) -> Run:
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(WAITING, kind)]
    if ago_s is not None:
        pairs.append(SearchAttributePair(WAITING_SINCE, datetime.now(UTC) - timedelta(seconds=ago_s)))
    return Run(TypedSearchAttributes(pairs))


def points(reader: InMemoryMetricReader) -> dict[tuple[str, str], float]:
    data = reader.get_metrics_data()
    assert data is not None
    found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {
        (metric.name, str((point.attributes or {})[names.WAIT_KIND])): point.value
        for metric in found
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


@pytest.mark.usefixtures("fresh_globals")
async def test_waiting_runs_are_counted_by_kind_with_the_age_of_the_oldest() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    gauges, there = (
        WaitingMetrics(),
        Visibility([waits("approval", 100), waits("approval", 7_200), waits("budget", None)]),
    )
    await gauges.refresh(cast("Client", there))
    seen = points(reader)
    assert (seen[names.WAITING_RUNS, "approval"], seen[names.WAITING_RUNS, "budget"]) == (2, 1)
    assert seen[names.WAITING_AGE, "approval"] == pytest.approx(7_200, abs=30)
    assert seen[names.WAITING_AGE, "budget"] == 0

    there.runs.clear()
    await gauges.refresh(cast("Client", there))
    assert set(points(reader).values()) == {0}
    provider.shutdown()


@dataclass
class Unwilling:
    """Refuses to list runs with this status."""

    status: RPCStatusCode
    asked: int = 0

    async def list_workflows(self, query: str, limit: int) -> AsyncGenerator[Run]:
        self.asked += 1
        raise RPCError("not here", self.status, b"")
        yield  # pyright: ignore[reportUnreachable]


@pytest.mark.parametrize(
    ("status", "goes_on"),
    [
        pytest.param(RPCStatusCode.UNAVAILABLE, True, id="an unavailable server"),
        pytest.param(RPCStatusCode.UNIMPLEMENTED, False, id="a server that never lists"),
    ],
)
@pytest.mark.usefixtures("fresh_globals")
async def test_a_server_without_lists_is_asked_only_once(status: RPCStatusCode, goes_on: bool) -> None:
    server = Unwilling(status)
    async with waiting_metrics(cast("Client", server), every_s=0.001):
        await asyncio.sleep(0.2)
    assert (server.asked > 1) is goes_on
