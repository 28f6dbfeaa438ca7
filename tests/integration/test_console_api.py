"""The console's interface on a real server, with a real worker: what it shows of runs, and what it does to them."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.names import TENANT
from orga.workflows.types.setup import Setup
from tests.support.console import a_console
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import a_loop

FACTS = Setup(agent="", model="", search_attributes=True)
PAYS = [calls("pay", cents=250), answers("paid")]


@pytest.fixture(autouse=True, scope="module")
async def _attributes(client: Client) -> None:
    await register_missing(client)


async def listed(client: Client, *handles: WorkflowHandle[Any, Any], waiting: bool = False) -> None:
    """Wait until visibility has these runs, and that they wait."""

    async def is_there() -> bool:
        ids = ", ".join(f"'{handle.id}'" for handle in handles)
        more = " AND OrgaWaiting IS NOT NULL" if waiting else f" AND {TENANT.name} IS NOT NULL"
        found = await client.count_workflows(f"WorkflowId IN ({ids}){more}")
        return found.count == len(handles)

    await wait_until(is_there)


async def test_a_held_run_is_in_the_list_in_the_inbox_and_in_its_snapshot(client: Client) -> None:
    async with (
        a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start({"task": "pay the lamp's bill", "tenant": "north"})
        held = await wait_for_held_calls(run)
        await listed(client, run, waiting=True)

        page = await console.get("/runs", text="LAMP", tenant="north")
        [row] = page["items"]
        assert (row["id"], row["kind"], row["task"]) == (run.id, "agent", "pay the lamp's bill")
        assert (row["state"], row["waiting"], row["ended"]) == ("waiting", "approval", None)
        assert page["counts"]["waiting"] >= 1

        [wait] = [each for each in (await console.get("/inbox"))["items"] if each["run"] == run.id]
        assert (wait["id"], wait["tool"], wait["arguments"]) == (held[0]["approval_id"], "pay", {"cents": 250})
        assert wait["run_task"] == "pay the lamp's bill"

        shown = await console.get(f"/runs/{run.id}")
        assert [each["id"] for each in shown["waits"]] == [wait["id"]]
        enabled = {each["kind"] for each in shown["controls"] if each["enabled"]}
        assert {"approve", "deny", "pause", "abort", "steer"} <= enabled
        assert not enabled & {"resume", "answer", "send", "requeue"}
        await run.terminate()
        ended = await console.get(f"/runs/{run.id}")
        assert (ended["state"], ended["result"], ended["waits"]) == ("terminated", None, [])
        assert {each["kind"] for each in ended["controls"] if each["enabled"]} == {"rewind", "fork"}


async def test_pages_of_the_list_have_each_run_once(client: Client) -> None:
    async with a_loop(client, [answers()], setup=FACTS) as loop, a_console(client) as console:
        runs = [await loop.start({"task": f"task {number}", "tenant": "paged"}) for number in range(5)]
        for run in runs:
            await run.result()
        await listed(client, *runs)
        found, following = list[str](), None
        while True:
            page = await console.get("/runs", tenant="paged", limit=2, **({"next": following} if following else {}))
            found += [row["id"] for row in page["items"]]
            if (following := page["next"]) is None:
                break
        assert found == [run.id for run in reversed(runs)]
        assert page["counts"] | {"all": 5, "completed": 5} == page["counts"]
        shown = await console.get(f"/runs/{runs[0].id}")
        assert (shown["state"], shown["result"]["output"]) == ("completed", "done")
