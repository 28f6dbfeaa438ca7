"""A name that is limited to a tenant sees nothing of others, and acts on nothing of theirs."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.client.console.app import ROUTES
from orga.client.console.doors import Limits, TokenFile
from orga.client.console.openapi import openapi_document
from orga.client.console.routes import API, derived_id
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, calls
from orga.workflows.types.names import TENANT, WAITING
from orga.workflows.types.setup import Setup
from tests.support.console import Served, a_console
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import a_loop


class Stage(NamedTuple):
    console: Served
    own: WorkflowHandle[Any, Any]
    other: WorkflowHandle[Any, Any]
    login: dict[str, str]
    """The headers of a name with all rights, limited to the tenant of `own`."""

    async def get(self, path: str, **query: Any) -> Any:
        return await self.console.http.get(f"/api/v1{path}", params=query or None, headers=self.login)


@pytest.fixture(scope="module")
async def stage(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    await register_missing(client)
    facts = Setup(agent="", model="", search_attributes=True)
    file = TokenFile(Path(tmp_path_factory.mktemp("doors")) / "tokens.json")
    login = {"Authorization": f"Bearer {file.add('nora', 'admin', ['door-north'])}"}
    async with (
        a_loop(client, [calls("pay", cents=9)], FakeTool("pay"), engine=Asks(), setup=facts) as loop,
        a_console(client, loop.task_queue, tokens=file, limits=Limits(1_000, 1_000)) as console,
    ):
        own = await loop.start({"task": "an own secret", "tenant": "door-north"})
        other = await loop.start({"task": "a foreign secret", "tenant": "door-south"})
        for run in (own, other):
            await wait_for_held_calls(run)
        query = f"{TENANT.name} IN ('door-north', 'door-south') AND {WAITING.name} IS NOT NULL"
        await wait_until(lambda: _has_count(client, query, 2))
        yield Stage(console, own, other, login)
        for run in (own, other):
            await run.terminate()


async def _has_count(client: Client, query: str, count: int) -> bool:
    return (await client.count_workflows(query)).count == count


async def test_lists_counts_and_the_inbox_have_own_runs_only(stage: Stage) -> None:
    for query in ({}, {"text": "secret"}, {"waiting": "approval"}, {"limit": 200}):
        page = (await stage.get("/runs", **query)).json()
        assert [row["id"] for row in page["items"]] == [stage.own.id], query
        assert "text" in query or (page["counts"]["all"], page["counts"]["waiting"]) == (1, 1)
    for query in ({"tenant": "door-south"}, {"text": "foreign"}):
        page = (await stage.get("/runs", **query)).json()
        assert page["items"] == []
    assert {wait["run"] for wait in (await stage.get("/inbox")).json()["items"]} == {stage.own.id}


KNOWN = {"number": "1", "reference": "1", "kind": "agent", "text": "secret"}
"""Values of the parameters of routes that read. The id of the run is filled in by the test."""
OTHERWISE_TESTED = {"/events", "/compare"}


def routes_that_read(*, of_a_run: bool) -> list[tuple[str, dict[str, str]]]:
    """Return the paths of the OpenAPI document with the parameters that they need. A new route is among them."""
    found: list[tuple[str, dict[str, str]]] = []
    for whole, methods in openapi_document(ROUTES, "1")["paths"].items():
        path = whole.removeprefix(API)
        if "get" not in methods or path in OTHERWISE_TESTED or path.startswith("/runs/{id}") != of_a_run:
            continue
        given = [each for each in methods["get"].get("parameters", ()) if each["in"] == "query"]
        needed = [each["name"] for each in given if each["required"]] + ["text"] * path.endswith("/search")
        query = {name: KNOWN[name] for name in needed}
        found.append((path.format(id="{id}", **KNOWN), query))
    return found


OF_RUNS = routes_that_read(of_a_run=True)
OF_ALL = routes_that_read(of_a_run=False)


@pytest.mark.parametrize(("path", "query"), OF_RUNS, ids=[path for path, _ in OF_RUNS])
async def test_a_run_of_others_does_not_exist(stage: Stage, path: str, query: dict[str, str]) -> None:
    missing = await stage.get(path.format(id="no-such-run"), **query)
    foreign = await stage.get(path.format(id=stage.other.id), **query)
    own = await stage.get(path.format(id=stage.own.id), **query)
    assert (foreign.status_code, missing.status_code) == (404, 404)
    assert foreign.json()["detail"].replace(stage.other.id, "no-such-run") == missing.json()["detail"]
    assert own.status_code == 200 or stage.own.id in own.text or path.endswith(("/texts/1", "/result"))


@pytest.mark.parametrize(("path", "query"), OF_ALL, ids=[path for path, _ in OF_ALL])
async def test_what_is_no_run_has_nothing_of_others(stage: Stage, path: str, query: dict[str, str]) -> None:
    answer = await stage.get(path, **query)
    assert answer.status_code in {200, 403, 404, 503}, answer.text
    assert stage.other.id not in answer.text
    assert "door-south" not in answer.text
    assert "foreign secret" not in answer.text


async def test_a_comparison_shows_no_run_of_others(stage: Stage) -> None:
    for a, b in ((stage.own.id, stage.other.id), (stage.other.id, stage.own.id)):
        assert (await stage.get("/compare", a=a, b=b)).status_code == 404


async def test_actions_and_starts_stay_within_the_tenant(stage: Stage) -> None:
    path = f"/runs/{stage.other.id}/actions"
    acted = await stage.console.post(path, {"id": "a", "kind": "abort"}, headers=stage.login)
    assert acted.status_code == 404
    for tenant in ("door-south", ["door-north"], {"door-north": 1}, 7):
        foreign = {"kind": "agent", "input": {"task": "a", "tenant": tenant}}
        assert (await stage.console.post("/runs", foreign, headers=stage.login)).status_code == 422
    taken = {"kind": "agent", "input": {"task": "a"}, "id": stage.other.id}
    answer = await stage.console.post("/runs", taken, headers=stage.login)
    assert (answer.status_code, "live" in answer.text) == (409, False)


async def test_nobody_takes_the_id_that_follows_from_a_request_of_somebody_else(stage: Stage) -> None:
    follows = [f"{kind}-{derived_id(stage.own.id, 'nora', 'fork-1')}" for kind in ("agent", "goal", "session", "run")]
    for taken in follows:
        answer = await stage.console.post("/runs", {"kind": "agent", "input": {"task": "a"}, "id": taken})
        assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, "id")


async def test_an_admin_of_a_tenant_changes_no_settings_of_others(stage: Stage) -> None:
    saved = await stage.console.http.put("/api/v1/settings", json={"version": 0, "values": {}}, headers=stage.login)
    assert saved.status_code == 403


async def test_a_fork_shares_the_past_of_its_own_run_alone(stage: Stage) -> None:
    foreign = {"workflow_id": stage.other.id, "iteration": 0}
    body = {"id": "foreign-past", "kind": "fork", "to_iteration": 0, "changes": {"fork": foreign}}
    forked = await stage.console.post(f"/runs/{stage.own.id}/actions", body, headers=stage.login)
    assert (forked.status_code, forked.json()["errors"][0]["where"]) == (422, "fork")


async def test_a_stream_has_nothing_of_others(stage: Stage) -> None:
    topics = {"topics": f"runs,inbox,run:{stage.other.id}"}
    received = ""
    async with stage.console.http.stream("GET", "/api/v1/events", params=topics, headers=stage.login) as answer:
        if answer.status_code != 404:
            async for text in answer.aiter_text():
                received += text
                if "event: list" in received and "event: inbox" in received:
                    break
    assert stage.other.id not in received.replace(f"run:{stage.other.id}", "")
    assert "foreign" not in received
