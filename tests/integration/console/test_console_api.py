"""The console's interface on a real server, with a real worker: what it shows of runs, and what it does to them."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ToolContext
from orga.client.console import actions
from orga.client.console.doors import Limits, TokenFile
from orga.client.journal.reading import read_journal
from orga.client.runs.ids import id_taken_error
from orga.client.runs.sessions import start_session
from orga.client.schedules.handle import ScheduledRun, run_states
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, ScriptedModel, answers, calls, permanent
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.names import TENANT
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.console import OWNER, Served, a_console
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.deferred import SCORE, a_check, checks, waiting_calls
from tests.support.runs.delegates import a_cast, agent
from tests.support.runs.goals import start as start_goal
from tests.support.runs.loop import Loop, a_loop, a_worker
from tests.support.runs.questions import send_update
from tests.support.runs.sagas import saga

FACTS = Setup(agent="", model="", search_attributes=True)
LOOKS = [calls("look"), calls("pay", cents=250)]
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
        a_loop(client, LOOKS, FakeTool("look", "a lamp"), FakeTool("pay"), engine=Asks(), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start({"task": "pay the lamp's bill", "tenant": "north"})
        held = await wait_for_held_calls(run)
        await listed(client, run, waiting=True)

        page = await console.get("/runs", text="LAMP", tenant="north")
        [row] = page["items"]
        assert (row["id"], row["kind"], row["task"]) == (run.id, "agent", "pay the lamp's bill")
        assert (row["state"], row["waiting"], row["ended"]) == ("waiting", "approval", None)
        assert page["counts"] is None, "the server cannot count the runs whose task has a text"
        counts = (await console.get("/runs", tenant="north"))["counts"]
        assert counts["all"] >= counts["running"] >= counts["waiting"] >= 1

        [wait] = [each for each in (await console.get("/inbox"))["items"] if each["run"] == run.id]
        assert (wait["id"], wait["tool"], wait["arguments"]) == (held[0]["approval_id"], "pay", {"cents": 250})
        assert wait["run_task"] == "pay the lamp's bill"
        assert wait["before"].startswith("look: a lamp")

        shown = await console.get(f"/runs/{run.id}")
        assert [each["id"] for each in shown["waits"]] == [wait["id"]]
        enabled = {each["kind"] for each in shown["controls"] if each["enabled"]}
        assert {"approve", "deny", "pause", "abort", "steer"} <= enabled
        assert not enabled & {"resume", "answer", "send", "requeue"}
        await run.terminate()
        ended = await console.get(f"/runs/{run.id}")
        assert (ended["state"], ended["result"], ended["waits"]) == ("terminated", None, [])
        assert {each["kind"] for each in ended["controls"] if each["enabled"]} == {"rewind", "fork"}


async def policies_of_wait(console: Served, run: WorkflowHandle[Any, Any], tool: str) -> list[str]:
    """Return the policies of the held call, once the run waits for nothing else."""
    await wait_for_held_calls(run)
    shown = (await console.get(f"/runs/{run.id}"))["waits"]
    assert [wait["tool"] for wait in shown] == [tool]
    return shown[0]["policies"]


async def test_a_held_call_has_its_policies_wherever_it_is_made(client: Client) -> None:
    """A step of a saga and a requeued letter are no calls of the newest reply."""
    recovery = Recovery(strategy="dead_letter", max_attempts=1)
    save = FakeTool("save", [permanent("down"), "saved"], options=ToolOptions(recovery=recovery))
    model = Hold()
    steps = [
        calls("save"),
        *[calls("look")] * 3,
        model.step(calls("pay")),
        saga({"tool": "pay", "arguments": {}, "kind": "final"}),
        answers("done"),
    ]
    agents = {"default": AgentConfig(tools=("save", "look", "pay", "saga"))}
    engine = Asks(policies=("money",))
    tools = [save, FakeTool("look"), FakeTool("pay")]
    async with (
        a_loop(client, steps, *tools, engine=engine, agents=agents, setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        await model.reached()
        engine.tools = ("pay", "save")
        await send_update(run, "requeue", "1.0")
        model.go.set()
        for tool in ("pay", "save", "pay"):
            assert await policies_of_wait(console, run, tool) == ["money"]
            [held] = await wait_for_held_calls(run)
            await send_update(run, "approve", approval_argument(held))
        await run.result()


async def test_the_plan_of_a_goal_names_the_live_run_of_each_step(client: Client) -> None:
    hold = Hold()
    steps = [a_step("a"), {"id": "b", "goal": "two", "skill": "mate"}, {"id": "c", "goal": "three", "skill": "mate"}]
    model = GoalModel(plan=says(steps=steps), evaluate=evaluation_reply("a", "b", "c"))
    scripts = {"lead": model, "mate": [hold.step(answers("all is done"))] * 2}
    agents = {"lead": agent("lead", "mate", tools=["look"]), "mate": agent("mate")}
    async with (
        a_cast(client, agents, scripts, FakeTool("look"), setup=FACTS) as (loop, _),
        a_console(client, loop.task_queue) as console,
    ):
        run = await start_goal(loop, agent="lead")
        await hold.reached()
        plan = (await console.get(f"/runs/{run.id}"))["plan"]
        hold.go.set()
        await run.result()
    assert plan.keys() == {"round", "steps"}
    shown = [(step["id"], step["status"], step["delegate"]) for step in plan["steps"]]
    assert shown == [("a", "open", None), ("b", "open", f"{run.id}.2.1"), ("c", "open", f"{run.id}.2.2")]


def unreachable(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ConnectionError("no route")


async def test_the_snapshot_has_the_circuits_of_the_run(client: Client) -> None:
    """Each field is known: the run does not report when an open circuit may be tried again."""
    model, breaker = Hold(), BreakerOptions(failure_threshold=1)
    read = FakeTool("read", unreachable, options=ToolOptions(breaker=breaker, max_attempts=1))
    async with (
        a_loop(client, [calls("read"), model.step(answers())], read, setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        await model.reached()
        shown = await console.get(f"/runs/{run.id}")
        assert shown["circuits"] == [{"name": "read", "state": "open", "failures": 1}]
        model.go.set()
        await run.result()


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


async def act(console: Served, run: WorkflowHandle[Any, Any], action_id: str, kind: str, **given: Any) -> Any:
    """Send an action, and return the status and the JSON of the answer."""
    answer = await console.post(f"/runs/{run.id}/actions", {"id": action_id, "kind": kind, **given})
    return answer.status_code, answer.json()


async def journal_of(client: Client, run: WorkflowHandle[Any, Any], event: str) -> list[dict[str, Any]]:
    return [entry.data async for entry in read_journal(client, run.id) if entry.event == event]


async def test_a_decision_counts_once_by_the_authenticated_name(client: Client) -> None:
    engine = Asks(approvers=(OWNER,))
    async with (
        a_loop(client, PAYS, FakeTool("pay"), engine=engine, setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        [held] = await wait_for_held_calls(run)
        forged = {"id": "d0", "kind": "approve", "approval_id": held["approval_id"], "by": "somebody else"}
        answer = await console.post(f"/runs/{run.id}/actions", forged)
        assert (answer.status_code, answer.json()["errors"]) == (422, [{"where": "by", "detail": "unknown key"}])

        first = await act(console, run, "d1", "approve", approval_id=held["approval_id"], reason="agreed")
        assert (first[0], first[1]["state"]) == (200, "applied")
        assert (await act(console, run, "d1", "approve", approval_id=held["approval_id"]))[1]["state"] == "applied"
        late = await act(console, run, "d2", "deny", approval_id=held["approval_id"])
        assert late[0] == 409
        await run.result()
        assert (await act(console, run, "d1", "approve", approval_id=held["approval_id"]))[0] == 200
        assert (await act(console, run, "d3", "deny", approval_id=held["approval_id"]))[0] == 409
        resolved = (await journal_of(client, run, "ApprovalResolved"))[0]
        assert (resolved["approved"], resolved["approver"], resolved["reason"]) == (True, OWNER, "agreed")


async def test_a_call_that_waits_for_its_result_is_in_the_inbox_and_is_completed(client: Client) -> None:
    async with (
        a_loop(client, checks(), a_check(output_schema=SCORE), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        [waiting] = await waiting_calls(run)
        await listed(client, run, waiting=True)
        [wait] = [each for each in (await console.get("/inbox", kind="result"))["items"] if each["run"] == run.id]
        assert (wait["id"], wait["tool"], wait["arguments"]) == (waiting["wait_id"], "check", {"person": "ada"})
        assert wait["expires"]
        enabled = {each["kind"] for each in (await console.get(f"/runs/{run.id}"))["controls"] if each["enabled"]}
        assert "complete" in enabled

        key = {"idempotency_key": wait["id"]}
        misfit = await act(console, run, "r1", "complete", **key, result={"score": "high"})
        assert (misfit[0], misfit[1]["state"]) == (200, "refused")
        assert "does not fit the output schema" in misfit[1]["detail"]
        for _ in range(2):
            done = await act(console, run, "r2", "complete", **key, result={"score": 640})
            assert (done[0], done[1]["state"]) == (200, "applied")
        await run.result()
        resolved = await journal_of(client, run, "ApprovalResolved")
        assert [(each["choice"], each["by"]) for each in resolved] == [("completed", OWNER)] * 2


async def test_interventions_report_what_became_of_them(client: Client) -> None:
    async with (
        a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        await wait_for_held_calls(run)
        answers_by_id = {
            "i1": await act(console, run, "i1", "resume"),
            "i2": await act(console, run, "i2", "pause"),
            "i3": await act(console, run, "i3", "steer", text="be quick"),
            "i4": await act(console, run, "i4", "resume"),
            "i5": await act(console, run, "i5", "abort", reason="enough"),
        }
        states = {key: (status, answer["state"]) for key, (status, answer) in answers_by_id.items()}
        assert states["i1"] == (200, "refused")
        assert states["i2"][1] in {"received", "applied"}
        assert states["i3"] == (200, "received")
        assert states["i4"] == states["i5"] == (200, "applied")
        assert (await act(console, run, "i6", "steer", text="too late"))[0] == 409
        await run.result()
        received = await journal_of(client, run, "InterventionReceived")
        assert {each["by"] for each in received} == {OWNER}


async def test_without_a_worker_an_action_counts_later(client: Client) -> None:
    loop = Loop(client, f"test-{uuid4()}", ScriptedModel([answers()]))
    async with a_console(client) as console:
        run = await loop.start()
        for action_id, kind, given in (("w1", "pause", {}), ("w2", "extend", {"max_iterations": 50})):
            status, answer = await act(console, run, action_id, kind, **given)
            assert (status, answer["state"]) == (202, "received")
        shown = await console.get(f"/runs/{run.id}")
        assert (shown["worker"]["present"], shown["state"]) == (False, "paused")
        async with a_worker(loop, setup=FACTS):

            async def is_applied() -> bool:
                return (await act(console, run, "w2", "extend", max_iterations=50))[1]["state"] == "applied"

            await wait_until(is_applied)  # a worker that has just started does not poll yet
            await act(console, run, "w3", "resume")
            await run.result()
        received = await journal_of(client, run, "InterventionReceived")
        assert {each["kind"] for each in received} == {"pause", "extend_budget", "resume"}
        assert {each["by"] for each in received} == {OWNER}
        assert await journal_of(client, run, "InterventionRefused") == []


async def test_a_run_that_was_aborted_before_a_worker_took_it_is_shown_as_aborted(client: Client) -> None:
    """It has no search attributes, so only its result has the ending."""
    loop = Loop(client, f"test-{uuid4()}", ScriptedModel([]))
    async with a_console(client) as console:
        run = await loop.start()
        assert (await act(console, run, "a1", "abort", reason="not needed"))[0] == 202
        async with a_worker(loop, setup=FACTS):
            await run.result()
        shown = await console.get(f"/runs/{run.id}")
        [row] = (await console.get("/runs", text=run.id))["items"]
        compared = await console.get("/compare", a=run.id, b=run.id)
    assert (shown["state"], shown["reason"], row["state"], compared["a"]["state"]) == ("aborted",) * 4
    assert await run_states(client, [ScheduledRun(run.id, datetime.now(UTC))]) == {run.id: "aborted"}
    assert "(aborted)" in str(await id_taken_error(client, run.id))


async def test_a_decision_that_was_sent_without_a_worker_has_one_effect(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        a_loop(client, PAYS, FakeTool("pay"), engine=Asks(approvers=(OWNER,)), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        [held] = await wait_for_held_calls(run)
        decision = {"approval_id": held["approval_id"], "reason": "agreed"}

        async def is_served(*_: object) -> bool:
            return False

        with monkeypatch.context() as none_seen:
            none_seen.setattr(actions, "may_be_served", is_served)
            assert (await act(console, run, "n1", "approve", **decision))[0] == 202
        await run.result()
        resolved = await journal_of(client, run, "ApprovalResolved")
        assert [(each["approved"], each["approver"]) for each in resolved if "approved" in each] == [(True, OWNER)]


async def test_an_approval_may_change_the_arguments(client: Client) -> None:
    pay, changed = FakeTool("pay"), {"amount": 5, "note": "n" * 3_000}
    async with (
        a_loop(client, PAYS, pay, engine=Asks(approvers=(OWNER,)), setup=FACTS) as loop,
        a_console(client, loop.task_queue) as console,
    ):
        run = await loop.start()
        [held] = await wait_for_held_calls(run)
        decision = {"approval_id": held["approval_id"], "arguments": changed}
        assert (await act(console, run, "d1", "deny", **decision))[1]["state"] == "refused"
        assert (await act(console, run, "a1", "approve", **decision))[1]["state"] == "applied"
        await run.result()
        records = (await console.get(f"/runs/{run.id}/timeline"))["items"]
        [call] = [call for record in records for call in record["calls"]]
        whole = (await console.http.get(f"/api/v1/runs/{run.id}/texts/{call['arguments']['reference']}")).text
    assert (pay.calls, json.loads(whole), call["approver"]) == ([changed], changed, OWNER)


async def test_two_people_may_use_the_same_id(client: Client, tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    login = {"Authorization": f"Bearer {file.add('bob', 'approver', [])}"}
    async with (
        a_loop(client, PAYS, FakeTool("pay"), engine=Asks(), setup=FACTS) as loop,
        a_console(client, loop.task_queue, tokens=file) as console,
    ):
        run = await loop.start()
        [held] = await wait_for_held_calls(run)
        assert (await act(console, run, "1", "steer", text="of ann"))[0] == 200
        theirs = {"id": "1", "kind": "steer", "text": "of bob"}
        assert (await console.post(f"/runs/{run.id}/actions", theirs, headers=login)).status_code == 200
        assert (await act(console, run, "2", "approve", approval_id=held["approval_id"]))[0] == 200
        denial = {"id": "2", "kind": "deny", "approval_id": held["approval_id"]}
        assert (await console.post(f"/runs/{run.id}/actions", denial, headers=login)).status_code == 409
        await run.result()
        applied = await journal_of(client, run, "InterventionApplied")
        assert {each["by"] for each in applied} == {OWNER, "bob"}


async def test_a_fork_and_a_rewind_are_made_once_for_each_id(client: Client) -> None:
    replies = [calls("look"), answers("seen")] * 3
    async with a_loop(client, replies, FakeTool("look"), setup=FACTS) as loop, a_console(client) as console:
        run = await loop.start()
        await run.result()
        for kind in ("fork", "rewind"):
            status, problem = await act(console, run, f"{kind}-of-the-answer", kind, to_iteration=2)
            assert (status, "is the answer of run" in problem["detail"]) == (409, True)
        _, forked = await act(console, run, "f1", "fork", to_iteration=1)
        _, again = await act(console, run, "f1", "fork", to_iteration=1)
        assert forked["run"] == again["run"]
        assert forked["state"] == "applied"
        await client.get_workflow_handle(forked["run"]).result()
        assert (await console.get(f"/runs/{forked['run']}"))["started_by"] == OWNER

        assert (await act(console, run, "r1", "rewind", to_iteration=1))[1]["state"] == "applied"
        await client.get_workflow_handle(run.id).result()
        before = await client.get_workflow_handle(run.id).describe()
        assert (await act(console, run, "r1", "rewind", to_iteration=1))[1]["state"] == "applied"
        assert (await client.get_workflow_handle(run.id).describe()).run_id == before.run_id
        received = await journal_of(client, run, "InterventionReceived")
        assert [(each["kind"], each["by"]) for each in received] == [("rewind", OWNER)]


async def test_a_fork_counts_as_a_start(client: Client) -> None:
    async with (
        a_loop(client, [calls("look"), answers("seen")], FakeTool("look"), setup=FACTS) as loop,
        a_console(client, limits=Limits(starts=1)) as console,
    ):
        run = await loop.start()
        await run.result()
        statuses = [(await act(console, run, each, "fork", to_iteration=1))[0] for each in ("f1", "f2")]
    assert statuses == [200, 429]


async def test_messages_of_a_session_are_taken_once(client: Client) -> None:
    async with a_loop(client, [answers("hello")], setup=FACTS) as loop, a_console(client) as console:
        session = await start_session(client, task_queue=loop.task_queue)
        run = client.get_workflow_handle(session.id)
        assert (await act(console, run, "m1", "send", text="hi"))[1]["detail"] == "turn 1"
        assert (await act(console, run, "m1", "send", text="hi"))[1]["detail"] == "turn 1"
        await session.result_of(1)
        assert (await act(console, run, "m2", "interrupt"))[1]["state"] == "refused"
        assert (await act(console, run, "m3", "override_step", skill="a", input="b"))[0] == 409
        assert (await act(console, run, "m4", "close"))[0] == 200
        assert (await session.result()).iterations == 1
        received = await journal_of(client, run, "InterventionReceived")
        assert [(each["kind"], each["by"]) for each in received] == [("send", OWNER), ("send", OWNER), ("close", OWNER)]


async def test_messages_count_when_a_worker_starts(client: Client) -> None:
    loop = Loop(client, f"test-{uuid4()}", ScriptedModel([answers("hello"), answers("bye")]))
    session = await start_session(client, task_queue=loop.task_queue)
    run = client.get_workflow_handle(session.id)
    async with a_console(client) as console:
        for action_id, text in (("m1", "hi"), ("m2", "more"), ("m1", "hi")):
            status, answer = await act(console, run, action_id, "send", text=text)
            assert (status, answer["state"]) == (202, "received")
        assert (await act(console, run, "m3", "interrupt", turn=7))[0] == 202
        async with a_worker(loop, setup=FACTS):
            await session.result_of(2)
            assert (await act(console, run, "m1", "send", text="hi"))[1]["state"] == "received"
            assert (await act(console, run, "m4", "close"))[0] == 200
            assert (await session.result()).iterations == 2
        [refused] = await journal_of(client, run, "InterventionRefused")
        assert (refused["kind"], refused["id"], refused["by"]) == ("interrupt", "m3", OWNER)


BAD_ACTIONS = {
    "no kind": ({"id": "a"}, "kind"),
    "an unknown kind": ({"id": "a", "kind": "delete"}, "kind"),
    "no id": ({"kind": "pause"}, "id"),
    "an id with a space": ({"id": "a b", "kind": "pause"}, "id"),
    "an id that is too long": ({"id": "a" * 65, "kind": "pause"}, "id"),
    "an unknown limit": ({"id": "a", "kind": "extend", "max_lamps": 1}, "max_lamps"),
    "an empty text": ({"id": "a", "kind": "steer", "text": ""}, "text"),
    "an unknown key": ({"id": "a", "kind": "pause", "text": "x"}, "text"),
    "a number for true": ({"id": "a", "kind": "rewind", "to_iteration": 0, "sure": 1}, "sure"),
    "a text for true": ({"id": "a", "kind": "complete", "idempotency_key": "k", "nothing_done": "no"}, "nothing_done"),
}


@pytest.mark.parametrize(("body", "where"), BAD_ACTIONS.values(), ids=BAD_ACTIONS)
async def test_a_bad_action_is_refused_by_its_key(client: Client, body: Any, where: str) -> None:
    async with a_console(client) as console:
        run = await Loop(client, f"test-{uuid4()}", ScriptedModel([answers()])).start()
        answer = await console.post(f"/runs/{run.id}/actions", body)
        assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, where)
        await run.terminate()


@pytest.mark.parametrize("kind", ["fork", "rewind"])
async def test_an_iteration_that_the_run_has_not_finished_is_refused(client: Client, kind: str) -> None:
    async with a_loop(client, [answers("seen")], setup=FACTS) as loop, a_console(client, loop.task_queue) as console:
        run = await loop.start({"task": "look"})
        await run.result()
        status, answer = await act(console, run, "a", kind, to_iteration=153)
        assert (status, "there are 0 to" in answer["detail"]) == (422, True)


async def test_a_request_to_start_counts_once_under_its_key(client: Client) -> None:
    async with a_loop(client, [answers("seen")], setup=FACTS) as loop, a_console(client, loop.task_queue) as console:
        body = {"kind": "agent", "input": {"task": "look", "config": {"max_iterations": 3}}}
        key = {"Idempotency-Key": str(uuid4())}
        first = await console.post("/runs", body, headers=key)
        assert (first.status_code, first.json()["kind"]) == (201, "agent")
        assert first.headers["location"] == f"/api/v1/runs/{first.json()['id']}"
        assert (await console.post("/runs", body, headers=key)).json() == first.json()
        others: list[Any] = [{"kind": "agent", "input": {"task": "else"}}, {"kind": "session", "input": {}}]
        for other in others:
            answer = await console.post("/runs", other, headers=key)
            assert (answer.status_code, named_in(answer)) == (409, ["Idempotency-Key"])
        several = [console.post("/runs", body, headers={"Idempotency-Key": "k"}) for _ in range(3)]
        assert len({answer.json()["id"] for answer in await asyncio.gather(*several)}) == 1

        shown = await console.get(f"/runs/{first.json()['id']}")
        assert (shown["task"], shown["started_by"]) == ("look", OWNER)


async def test_an_id_of_your_own_starts_one_run(client: Client) -> None:
    async with a_console(client) as console:
        body = {"kind": "session", "input": {"agent": "default"}, "id": f"s-{uuid4()}"}
        key, another = {"Idempotency-Key": str(uuid4())}, {**body, "kind": "agent", "input": {"task": "look"}}
        for _ in range(2):
            answer = await console.post("/runs", body, headers=key)
            assert (answer.status_code, answer.json()["id"]) == (201, body["id"])
        for other, headers in ((body, {}), (another, {}), (another, key)):
            answer = await console.post("/runs", other, headers=headers)
            assert (answer.status_code, named_in(answer)) == (409, ["id"])
        assert answer.json()["detail"] == f"id: {body['id']!r} is taken by another run. Choose another id"
        await client.get_workflow_handle(str(body["id"])).terminate()


def named_in(answer: httpx.Response) -> list[str]:
    return [error["where"] for error in answer.json()["errors"]]


BAD_STARTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown kind": ({"kind": "job", "input": {}}, ["kind"]),
    "no input": ({"kind": "agent"}, ["input"]),
    "no task": ({"kind": "agent", "input": {}}, ["task"]),
    "two bad keys": (
        {"kind": "goal", "input": {"goal": "a", "modle": "b", "config": {"max_iterations": 0}}},
        ["config.max_iterations", "modle"],
    ),
    "a task that is no text": ({"kind": "agent", "input": {"task": 5}}, ["task"]),
}


@pytest.mark.parametrize(("body", "where"), BAD_STARTS.values(), ids=BAD_STARTS)
async def test_a_bad_start_is_refused_by_its_keys(client: Client, body: Any, where: list[str]) -> None:
    async with a_console(client) as console:
        answer = await console.post("/runs", body)
        assert answer.status_code == 422
        assert sorted(error["where"] for error in answer.json()["errors"]) == where


async def test_the_schema_of_an_input_has_descriptions_and_defaults(client: Client) -> None:
    async with a_console(client) as console:
        schema = await console.get("/schema/goal")
        limit = schema["$defs"]["GoalConfig"]["properties"]["max_iterations"]
        assert (limit["default"], limit["description"]) == (15, "Rounds of steps that were executed.")
        assert (await console.http.get("/api/v1/schema/job")).status_code == 404


BAD_LISTS = {
    "a number as a time": ({"to": "0.5"}, "to"),
    "a time without a zone": ({"from": "2026-11-26T20:00:00"}, "from"),
    "a limit of 0": ({"limit": "0"}, "limit"),
    "an unknown filter": ({"colour": "red"}, "colour"),
    "an unknown kind": ({"kind": "job"}, "kind"),
    "a forged next": ({"next": "abc"}, "next"),
}


@pytest.mark.parametrize(("query", "where"), BAD_LISTS.values(), ids=BAD_LISTS)
async def test_a_bad_filter_is_refused_by_its_key(client: Client, query: dict[str, str], where: str) -> None:
    async with a_console(client) as console:
        answer = await console.http.get("/api/v1/runs", params=query)
        assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, where)


async def test_the_filters_of_the_list_can_be_combined(client: Client) -> None:
    async with a_loop(client, [answers()], setup=FACTS) as loop, a_console(client) as console:
        run = await loop.start({"task": "combine", "tenant": "combined"})
        await run.result()
        await listed(client, run)
        filters = {"kind": "agent", "agent": "default", "ending": "completed", "tenant": "combined", "text": "COMB"}
        times = {"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"}
        assert [row["id"] for row in (await console.get("/runs", **filters, **times))["items"]] == [run.id]
        for key, value in {"kind": "goal", "agent": "nobody", "ending": "aborted", "text": "lamp"}.items():
            assert (await console.get("/runs", **(filters | {key: value})))["items"] == [], key
        for key, value in {"phase": "acting", "waiting": "any", "folder": "/nowhere"}.items():
            assert (await console.get("/runs", tenant="combined", **{key: value}))["items"] == [], key
