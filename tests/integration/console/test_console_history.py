"""The console's interface reads the history of runs, on a real server."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.console.routes import API
from orga.client.journal.file import generate_key, head_check, public_key, public_path, read_journal_file
from orga.client.journal.timeline_reader import Timelines
from orga.client.past.fork import fork
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from tests.support.console import Served, a_console
from tests.support.runs.loop import WORKER_FACTS, Deny, Loop, a_loop

STEPS = [
    calls("look", "burn", arguments={"n": 1}, reply_text="first"),
    calls("look", arguments={"n": 2}, reply_text="second"),
    answers("done"),
]
LONG = "line of the page\n" * 500


@pytest.fixture
async def loop(client: Client) -> AsyncGenerator[Loop]:
    tools = (FakeTool("look", lambda given, _: f"{LONG}{given['n']}"), FakeTool("burn"))
    setup = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    async with a_loop(client, STEPS, *tools, engine=Deny("burn"), setup=setup) as loop:
        yield loop


@pytest.fixture
async def console(client: Client, loop: Loop) -> AsyncGenerator[Served]:
    async with a_console(client, loop.task_queue) as console:
        yield console


async def test_an_ended_run_can_be_read_in_all_its_texts(console: Served, loop: Loop) -> None:
    ran = await loop.run()
    run = f"/runs/{ran.handle.id}"
    page = await console.get(f"{run}/timeline")

    assert ([record["number"] for record in page["items"]], page["total"], page["first"]) == ([0, 1, 2, 3], 3, 0)
    first = page["items"][1]
    look, burn = first["calls"]
    assert (first["reply"], first["thinking"]) == ({"head": "first", "size": 5, "reference": None}, None)
    assert (look["verdict"], look["state"], look["arguments"]["head"]) == ("allow", "ok", '{"n":1}')
    assert (burn["verdict"], burn["state"], burn["reason"]) == ("deny", "denied", "burn is forbidden")
    assert (len(look["result"]["head"]), look["result"]["size"]) == (2_000, len(LONG) + 1)
    whole = await console.http.get(f"{API}{run}/texts/{look['result']['reference']}")
    assert (whole.text, whole.headers["content-type"]) == (f"{LONG}1", "text/plain; charset=utf-8")
    assert "content-disposition" not in whole.headers
    saved = await console.http.get(f"{API}{run}/texts/{look['result']['reference']}?download")
    assert saved.headers["content-disposition"].startswith("attachment; filename=")
    one = await console.get(f"{run}/iterations/1")
    assert one["calls"][0]["result"] == {"head": f"{LONG}1", "size": len(LONG) + 1, "reference": None}
    window = await console.get(f"{run}/timeline", before=3, limit=1)
    assert [record["number"] for record in window["items"]] == [2]
    found = await console.get(f"{run}/search", text="THE PAGE")
    assert [(each["iteration"], each["where"]) for each in found["items"]] == [(2, "2.0 result"), (1, "1.0 result")]
    talk = await console.get(f"{run}/conversation")
    assert talk["items"][-1]["text"] == "done"
    assert (await console.get(f"{run}/result"))["output"] == "done"
    assert (await console.get(f"{run}/plans"), await console.get(f"{run}/memory")) == ({"items": [], "next": None},) * 2


async def test_the_journal_is_one_object_on_each_line_and_is_signed_on_demand(
    client: Client, loop: Loop, tmp_path: Any
) -> None:
    ran = await loop.run()
    generate_key(tmp_path / "key")
    async with a_console(client) as console:
        journal = await console.http.get(f"{API}/runs/{ran.handle.id}/journal")
        unsigned = await console.http.get(f"{API}/runs/{ran.handle.id}/journal?signed")
    async with a_console(client, signing_key_file=tmp_path / "key") as console:
        signed = await console.http.get(f"{API}/runs/{ran.handle.id}/journal?signed")

    lines = [json.loads(line) for line in journal.text.splitlines()]
    assert [line["event"] for line in lines] == ran.events
    assert (unsigned.status_code, "no key is configured" in unsigned.json()["detail"]) == (409, True)
    (tmp_path / "signed.jsonl").write_bytes(signed.content)
    file, key = read_journal_file(tmp_path / "signed.jsonl"), public_key(public_path(tmp_path / "key").read_text())
    assert [entry.hash for entry in file.entries] == [entry.hash for entry in ran.journal]
    assert head_check(ran.handle.id, file.entries, file.head, [key]).ok


async def test_a_fork_is_compared_from_where_it_left_its_origin(client: Client, console: Served, loop: Loop) -> None:
    ran = await loop.run()
    forked = await fork(client, ran.handle.id, 1)
    again = await loop.ended(client.get_workflow_handle(forked.id))
    compared = await console.get("/compare", a=ran.handle.id, b=again.handle.id)

    assert compared["common"] == 1
    assert [row["number"] for row in compared["rows"]] == [2, 3]
    assert compared["a"]["result"]["output"] == compared["b"]["result"]["output"] == "done"
    assert compared["next"] is None
    page = await console.get("/compare", a=ran.handle.id, b=again.handle.id, limit=1)
    assert [row["number"] for row in page["rows"]] == [2]
    rest = await console.get("/compare", a=ran.handle.id, b=again.handle.id, limit=1, next=page["next"])
    same = await console.get("/compare", a=ran.handle.id, b=ran.handle.id)
    assert (same["common"], same["rows"]) == (3, [])
    assert [row["number"] for row in rest["rows"]] == [3]


@pytest.mark.parametrize(
    ("path", "status", "where"),
    [
        ("timeline?around=x", 422, "around"),
        ("timeline?around=-1", 422, "around"),
        ("timeline?before=1&after=2", 422, "around"),
        ("timeline?limit=0", 422, "limit"),
        ("timeline?limit=101", 422, "limit"),
        ("timeline?more=1", 422, "more"),
        ("iterations/x", 422, "number"),
        ("iterations/-1", 422, "number"),
        ("iterations/99", 404, None),
        ("texts/x", 404, None),
        ("texts/..%2F..%2Fetc", 404, None),
        ("search", 422, "text"),
        ("search?text=", 422, "text"),
        ("search?text=a&next=b", 422, "next"),
        ("conversation?offset=-1", 422, "offset"),
        ("conversation?limit=x", 422, "limit"),
        ("result", 404, None),
    ],
)
async def test_what_makes_no_sense_is_a_problem_that_names_the_parameter(
    client: Client, idle: Served, path: str, status: int, where: str | None
) -> None:
    answer = await idle.http.get(f"{API}/runs/{IDLE}/{path}")
    problem = answer.json()
    assert (answer.status_code, problem["status"], answer.headers["content-type"]) == (
        status,
        status,
        "application/problem+json",
    )
    assert [each["where"] for each in problem.get("errors", [])] == ([where] if where else [])


IDLE = "idle-run-of-the-history"


@pytest.fixture(scope="module")
async def idle(client: Client) -> AsyncGenerator[Served]:
    """A console, and a run that no worker takes."""
    run = await client.start_workflow("AgentWorkflow", {"task": "wait"}, id=IDLE, task_queue="nobody")
    async with a_console(client) as console:
        yield console
    await run.terminate()


async def test_texts_of_another_run_do_not_exist(console: Served, loop: Loop) -> None:
    other, mine = await loop.run(), await loop.run()
    page = await console.get(f"/runs/{other.handle.id}/timeline")
    reference = page["items"][1]["calls"][0]["result"]["reference"]
    assert (await console.http.get(f"{API}/runs/{mine.handle.id}/texts/{reference}")).status_code == 404
    assert (await console.http.get(f"{API}/runs/{other.handle.id}/texts/{reference}")).status_code == 200
    assert (await console.http.get(f"{API}/compare?a={mine.handle.id}&b=none")).status_code == 404


async def test_the_call_by_which_a_model_ends_its_run_has_succeeded(client: Client) -> None:
    """The journal has no outcome for it."""
    ends = calls("terminate", arguments={"reason": "completed", "output": "all is done"})
    agents = {"default": AgentConfig(tools=("terminate",))}
    async with a_loop(client, [ends], agents=agents) as loop:
        ran = await loop.run()
        page = await Timelines(client).page(ran.handle.id)
    assert [(call.tool, call.state, call.verdict) for call in page.items[-1].calls] == [("terminate", "ok", "allow")]
