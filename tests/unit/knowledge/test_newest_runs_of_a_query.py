"""The newest runs of a query are found, no matter how many others a server lists first."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client

from orga.client.runs.ids import newest_run
from orga.client.runs.newest import LIVE_QUERY, newest_runs
from tests.support.values.core import T0


class Listing:
    """Lists live runs and ended runs separately, as the server does."""

    def __init__(self, live: list[Any], ended: list[Any]) -> None:
        self.live = live
        self.ended = ended
        self.queries: list[str] = []

    async def list_workflows(self, query: str, **_: Any) -> AsyncGenerator[Any]:
        self.queries.append(query)
        for run in self.live if LIVE_QUERY in query else self.ended:
            yield run


def a_run(name: str, begun_s: float, ended_s: float | None = None, parent: str | None = None) -> Any:
    return SimpleNamespace(
        id=name,
        run_id=f"run of {name}",
        start_time=T0 + timedelta(seconds=begun_s),
        close_time=None if ended_s is None else T0 + timedelta(seconds=ended_s),
        parent_id=parent,
    )


async def test_a_run_is_found_after_all_its_delegates() -> None:
    delegates = [a_run(f"lead.{n}", 10, 500 - n, parent="lead") for n in range(300)]
    listing = Listing([a_run("helper", 400, parent="lead")], [*delegates, a_run("lead", 1, 100), a_run("old", 0, 0.5)])
    assert (await newest_run(cast("Client", listing), "q")).id == "lead"


async def test_ended_runs_are_not_listed_if_only_live_ones_are_wanted() -> None:
    listing = Listing([a_run("b", 2), a_run("a", 1)], [])
    found = await newest_runs(cast("Client", listing), "x", 1, with_ended=False)
    assert [run.id for run in found] == ["b"]
    assert listing.queries == [f"{LIVE_QUERY} AND x"]


async def test_a_run_that_ends_between_the_two_queries_is_listed_once_as_ended() -> None:
    listing = Listing([a_run("a", 5), a_run("b", 1)], [a_run("a", 5, 6), a_run("c", 0, 2)])
    found = await newest_runs(cast("Client", listing), "x", 3)
    assert [(run.id, run.close_time is None) for run in found] == [("a", False), ("b", True), ("c", False)]


@pytest.mark.parametrize(
    ("live", "ended", "limit", "found"),
    [
        pytest.param([], [("a", 5, 9), ("b", 4, 8), ("a", 1, 2)], 3, [("a", 5), ("b", 4)], id="rewound after its end"),
        pytest.param([("a", 6, None)], [("a", 1, 5), ("b", 2, 3)], 3, [("a", 6), ("b", 2)], id="rewound and live"),
        pytest.param([], [("a", 1, 9), ("b", 2, 8), ("a", 5, 7)], 1, [("a", 5)], id="the older one ended last"),
        pytest.param([], [("a", 5, 9), ("a", 1, 8), ("a", 3, 7), ("b", 2, 6)], 2, [("a", 5), ("b", 2)], id="twice"),
    ],
)
async def test_a_rewound_run_is_listed_by_its_latest_execution(
    live: list[Any], ended: list[Any], limit: int, found: list[Any]
) -> None:
    listing = Listing([a_run(*run) for run in live], [a_run(*run) for run in ended])
    newest = await newest_runs(cast("Client", listing), "x", limit)
    assert [(run.id, (run.start_time - T0).total_seconds()) for run in newest] == found


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_last_started_runs_are_found_regardless_of_when_they_ended(limit: int) -> None:
    starts = [3, 9, 1, 7, 5, 8, 2]
    ended = sorted((a_run(f"r{begun}", begun, 20 + begun * 7 % 11) for begun in starts), key=lambda run: run.close_time)
    found = await newest_runs(cast("Client", Listing([a_run("r6", 6)], ended[::-1])), "x", limit)
    assert [run.id for run in found] == [f"r{begun}" for begun in sorted([*starts, 6], reverse=True)][:limit]
