"""The `temporal` command alone, with plain JSON, starts, steers, watches and ends a run, without any code of orga."""

import asyncio
import json
import uuid
from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold, wait_for_event, wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, Deny, a_loop


@dataclass(frozen=True)
class Temporal:
    """The command, connected to one server."""

    executable: str
    address: str

    async def __call__(self, *arguments: str) -> Any:
        """Run `temporal workflow …` and return the JSON that it prints, or None."""
        code, out, err = await self.ended(*arguments)
        assert code == 0, err
        return json.loads(out) if out.strip() else None

    async def ended(self, *arguments: str) -> tuple[int | None, str, str]:
        """Run the command and return its exit code and both outputs."""
        process = await asyncio.create_subprocess_exec(
            self.executable,
            "workflow",
            *arguments,
            *("--address", self.address, "--output", "json", "--disable-config-file", "--disable-config-env"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def start(self, task_queue: str, run_input: dict[str, Any]) -> str:
        """Start a run and return its id."""
        started = await self(
            *("start", "--type", "AgentWorkflow", "--task-queue", task_queue, "--execution-timeout", "60s"),
            *("--input", json.dumps(run_input), "--workflow-id", f"agent-{uuid.uuid4()}"),
        )
        return started["workflowId"]

    async def signal(self, run: str, name: str, value: str | None = None) -> None:
        """Signal a run."""
        given = () if value is None else ("--input", json.dumps(value))
        code, _, err = await self.ended("signal", "--workflow-id", run, "--name", name, *given)
        assert code == 0, err

    async def query(self, run: str, name: str) -> Any:
        """Query a run."""
        return (await self("query", "--workflow-id", run, "--type", name))["queryResult"][0]

    async def result(self, run: str) -> Any:
        """Wait for the end of a run and return its result."""
        return (await self("result", "--workflow-id", run))["result"]


@pytest.fixture
def plain(client: Client, temporal: str) -> Temporal:
    return Temporal(temporal, client.service_client.config.target_host)


async def test_a_run_starts_from_plain_json_and_its_result_has_the_keys_of_the_contract(
    client: Client, plain: Temporal
) -> None:
    async with a_loop(client, [calls("look"), answers("all is well")], FakeTool("look")) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around", "config": {"max_iterations": 3}})
        result = await plain.result(run)
        await loop.ended(client.get_workflow_handle(run))

    digest, duration_s = result.pop("conversation_digest"), result.pop("duration_s")
    assert digest.startswith("sha256:")
    assert 0 < duration_s < 60
    assert result == {
        "output": "all is well",
        "data": None,
        "iterations": 2,
        "termination": {"reason": "completed", "detail": ""},
        "usage": {
            "input_tokens": 200,
            "output_tokens": 20,
            "cached_input_tokens": 0,
            "total_tokens": 220,
            "model_calls": 2,
            "cost_usd": None,
        },
        "tool_calls": {"proposed": 1, "run": 1, "denied": 0, "failed": 0},
    }


async def test_a_run_is_steered_and_watched(client: Client, plain: Temporal) -> None:
    hold = Hold()
    provider = ScriptedModel([hold.step(calls("look")), answers("to the left")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around"})
        await hold.reached()
        await plain.signal(run, "steer", "look to the left")
        await plain.signal(run, "add_context", "there is a wall on the right")
        status = await plain.query(run, "status")
        hold.go.set()
        result = await plain.result(run)
        conversation = await plain.query(run, "conversation")
        await loop.ended(client.get_workflow_handle(run))

    assert (status["phase"], status["iteration"], status["budgets"]["max_iterations"]) == ("reasoning", 0, 25)
    assert status["unread_interventions"] == [
        {"kind": "steer", "text": "look to the left"},
        {"kind": "add_context", "text": "there is a wall on the right"},
    ]
    assert result["output"] == "to the left"
    assert [m["text"] for m in conversation if m["role"] == "user"] == [
        "look around",
        "[Guidance from the operator] look to the left",
        "[Context from the operator]\nthere is a wall on the right",
    ]


async def test_a_run_is_paused_and_resumed(client: Client, plain: Temporal) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(calls("look")), answers()], FakeTool("look")) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around"})
        await hold.reached()
        await plain.signal(run, "pause")
        hold.go.set()
        await wait_until(lambda: has_details(plain, run, "**paused**, iteration 1 of 25"))
        assert (await plain.query(run, "status"))["phase"] == "paused"
        await plain.signal(run, "resume")
        result = await plain.result(run)
        await loop.ended(client.get_workflow_handle(run))

    assert result["termination"] == {"reason": "completed", "detail": ""}


async def has_details(plain: Temporal, run: str, start: str) -> bool:
    metadata = await plain.query(run, "__temporal_workflow_metadata")
    return metadata.get("currentDetails", "").startswith(start)


async def test_a_run_is_aborted_in_flight(client: Client, plain: Temporal) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers())]) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around"})
        await hold.reached()
        await plain.signal(run, "abort", "changed my mind")
        await wait_for_event(hold.cancelled)
        result = await plain.result(run)
        await loop.ended(client.get_workflow_handle(run))

    assert result["termination"] == {"reason": "aborted", "detail": "changed my mind"}


async def test_the_current_details_show_the_state_of_the_run_in_markdown(client: Client, plain: Temporal) -> None:
    hold = Hold()
    steps = [calls("look", arguments={"path": "README.md"}), hold.step(answers())]
    async with a_loop(client, steps, FakeTool("look")) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around"})
        await hold.reached()
        metadata = await plain.query(run, "__temporal_workflow_metadata")
        hold.go.set()
        await plain.result(run)

    assert metadata["currentDetails"].splitlines() == [
        "**reasoning**, iteration 1 of 25",
        "",
        "- task: `look around`",
        "- model: `scripted:model`",
        "- spent: 110 tokens in 1 model call",
        "- tool calls: 1 run, 0 denied, 0 failed",
        "- last: `look README.md`",
    ]
    signals = {signal.get("name") for signal in metadata["definition"]["signalDefinitions"]}
    assert {"steer", "add_context", "pause", "resume", "abort"} <= signals


async def test_the_summaries_in_the_history_describe_the_run(client: Client, plain: Temporal) -> None:
    steps = [calls("look", "fetch", arguments={"path": "README.md"}), answers()]
    async with a_loop(client, steps, FakeTool("look"), FakeTool("fetch"), engine=Deny("fetch")) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around"})
        await plain.result(run)
        history = await plain("show", "--workflow-id", run)

    assert [reported for event in history["events"] if (reported := summarised(event))] == [
        ("prepare", "agent default"),
        ("reason", None),
        ("gate", "iteration 1: look README.md; fetch README.md"),
        ("look", "README.md"),
        ("reason", "iteration 2, after a denial: fetch README.md"),
        ("gate", "iteration 2: the answer"),
    ]
    scheduled = [given for event in history["events"] if (given := event.get("activityTaskScheduledEventAttributes"))]
    assert [(given["activityType"]["name"], given["activityId"]) for given in scheduled][1:] == [
        ("reason", "1"),
        ("look", "1.0"),
        ("reason", "2"),
    ]


async def test_a_held_run_shows_what_it_waits_for_and_the_commands_that_decide(client: Client, plain: Temporal) -> None:
    steps = [calls("send_letter", arguments={"to": "ada"}), answers("sent")]
    engine = Asks(("send_letter",), approvers=("grace",))
    async with a_loop(client, steps, FakeTool("send_letter"), engine=engine) as loop:
        run = await plain.start(loop.task_queue, {"task": "write to ada"})
        await wait_until(lambda: has_details(plain, run, "**waiting**, iteration 1 of 25"))
        [item] = await wait_for_held_calls(client.get_workflow_handle(run))
        lines = (await plain.query(run, "__temporal_workflow_metadata"))["currentDetails"].splitlines()
        await client.get_workflow_handle(run).execute_update("approve", approval_argument(item, "grace"))  # pyright: ignore[reportUnknownMemberType]
        await plain.result(run)
        history = await plain("show", "--workflow-id", run)

    assert lines[2].startswith("- `waiting for approval of send_letter` since ")
    assert lines[3:8] == [
        '  - `send_letter {"to":"ada"}`, because `money moves`, for `grace` to decide',
        f"  - until {datetime.fromisoformat(item['expires_at']):%Y-%m-%d %H:%M} UTC, then it is denied",
        f"  - to decide: `orga approve {run} {item['approval_id']}`",
        f"  - to decide: `orga deny {run} {item['approval_id']}`",
        "- task: `write to ada`",
    ]
    timers = [event for event in history["events"] if "timerStartedEventAttributes" in event]
    assert [summary_of(event) for event in timers] == [
        "time limit",
        "waiting for approval of send_letter",
        "time limit",
    ]


def summary_of(event: dict[str, Any]) -> str | None:
    summary = event.get("userMetadata", {}).get("summary")
    return None if summary is None else json.loads(b64decode(summary["data"]))


def summarised(event: dict[str, Any]) -> tuple[str, str | None] | None:
    """Return the type and summary of an activity, including one inside a workflow task."""
    if marked := event.get("markerRecordedEventAttributes"):
        name = json.loads(b64decode(marked["details"]["data"]["payloads"][0]["data"]))["activity_type"]
    elif given := event.get("activityTaskScheduledEventAttributes"):
        name = given["activityType"]["name"]
    else:
        return None
    return name, summary_of(event)


async def test_runs_are_listed_by_their_search_attributes(client: Client, plain: Temporal) -> None:
    await register_missing(client)
    knows = WORKER_FACTS.model_copy(update={"search_attributes": True})
    hold = Hold()
    provider = ScriptedModel([hold.step(calls("look", reply_cost_usd=0.25)), answers()], repeats=True)
    tenant = f"tenant-{uuid.uuid4()}"
    async with a_loop(client, provider, FakeTool("look"), setup=knows) as loop:
        run = await plain.start(loop.task_queue, {"task": "look around", "tenant": tenant})
        mine = f"OrgaAgent = 'default' AND OrgaTenant = '{tenant}'"
        await hold.reached()
        await plain.signal(run, "pause")
        hold.go.set()
        await wait_until(lambda: lists(plain, f"{mine} AND OrgaPhase = 'paused' AND ExecutionStatus = 'Running'", run))
        await plain.signal(run, "resume")
        await plain.result(run)
        closed = f"{mine} AND OrgaTermination = 'completed' AND OrgaIteration = 2 AND OrgaCostUsd = 0.25"
        await wait_until(lambda: lists(plain, closed, run))
        await wait_until(lambda: lists(plain, "OrgaAgent = 'default'", run))
        await loop.ended(client.get_workflow_handle(run))


async def lists(plain: Temporal, query: str, run: str) -> bool:
    found: list[Any] | None = await plain("list", "--query", query)
    return run in [entry["execution"]["workflowId"] for entry in found or []]


@pytest.mark.parametrize(
    ("run_input", "problem"),
    [
        pytest.param({"tsk": "look"}, "task: Field required; tsk: unknown key", id="a misspelt key"),
        pytest.param({"task": "look", "config": {"max_iterations": 0}}, "config.max_iterations", id="a bad value"),
        pytest.param({"task": "look", "agent": "nobody"}, "nobody", id="an unknown agent"),
    ],
)
async def test_unusable_input_fails_the_run_naming_the_key(
    client: Client, plain: Temporal, run_input: dict[str, Any], problem: str
) -> None:
    provider = ScriptedModel([answers()], repeats=True)
    async with a_loop(client, provider) as loop:
        run = await plain.start(loop.task_queue, run_input)
        code, out, _ = await plain.ended("result", "--workflow-id", run)

    failure = json.loads(out)["closeEvent"]["workflowExecutionFailedEventAttributes"]["failure"]
    assert code == 1
    assert problem in failure["message"]
    assert failure["applicationFailureInfo"] == {"type": "InvalidInput", "nonRetryable": True}
    assert provider.seen == []
