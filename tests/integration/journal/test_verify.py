"""`verify` finds a history that today's code does not produce, and a journal or result that differs from it."""

import copy
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_core import from_json, to_json
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError

from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.journal.laws import Check
from orga.client.journal.reading import read_journal
from orga.client.past.fork import fork
from orga.client.past.rewind import rewind
from orga.client.proof.verify import check_histories, verify
from orga.testing import FakeTool, answers, calls
from orga.workflows.decisions.journal.entries import entry_hash
from orga.workflows.types.status import JournalEntry
from tests.support.hold import Hold, wait_until
from tests.support.runs.loop import WORKER_FACTS, Deny, Ran, a_loop
from tests.support.runs.rewound import wait_for_rewound

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
COMPLETED = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED


async def a_run(client: Client, setup: Any = WORKER_FACTS) -> Ran:
    """Run tools, a denial, a repair and an answer."""
    steps = [
        calls("look", "forbidden", reply_text="first", reply_cost_usd=0.1),
        answers(""),
        calls("look"),
        answers("done"),
    ]
    tools = (FakeTool("look"), FakeTool("forbidden"))
    async with a_loop(client, steps, *tools, engine=Deny("forbidden"), setup=setup) as loop:
        return await loop.run()


def wrong(checks: Any) -> list[Check]:
    return [check for check in checks if not check.ok]


@pytest.mark.parametrize("setup", [WORKER_FACTS, EACH_ITERATION], ids=["one run", "a chain of runs"])
async def test_a_complete_run_verifies(client: Client, setup: Any) -> None:
    ran = await a_run(client, setup)
    found = await verify(client, ran.handle.id, exported=ran.journal)

    assert wrong(found.checks) == []
    names = [check.name for check in found.checks]
    assert names == ["replay", "gate", "ending", "contexts"] * len(ran.histories) + ["journal", "counters", "export"]


async def test_a_live_run_verifies(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        found = await verify(client, handle.id)
        so_far = [entry async for entry in read_journal(client, handle.id)]
        assert (await verify(client, handle.id, exported=so_far[:3])).ok
        hold.go.set()
        await loop.ended(handle)

    assert wrong(found.checks) == []
    assert [check.name for check in found.checks] == ["replay", "gate", "contexts", "journal"]


async def test_rewound_and_forked_runs_verify(client: Client) -> None:
    steps = [calls("look", reply_cost_usd=0.1), answers("one"), answers("two"), answers("three")]
    async with a_loop(client, steps, FakeTool("look")) as loop:
        first = await loop.run()
        rewound = await wait_for_rewound(client, await rewind(client, first.handle.id, 1, steer="again"))
        forked = await wait_for_rewound(client, await fork(client, first.handle.id, 1))

    for ran in (rewound, forked):
        assert wrong((await verify(client, ran.handle.id)).checks) == []


@pytest.mark.parametrize("rewinds", [1, 2])
async def test_a_rewound_run_that_continues_as_new_later_verifies(client: Client, rewinds: int) -> None:
    """The input of its next segment names the run id after the reset, which no event before the reset names."""
    again = [*[calls("look")] * 4, answers("again")]
    steps = [calls("look"), calls("look"), answers("one"), *again, *again]
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 60})
    async with a_loop(client, steps, FakeTool("look"), setup=facts) as loop:
        ran = await loop.run()
        for _ in range(rewinds):
            ran = await wait_for_rewound(client, await rewind(client, ran.handle.id, 1))
    assert len(ran.histories) > 1
    found = await verify(client, ran.handle.id)
    assert wrong(found.checks) == []
    assert sum(check.name == "ending" for check in found.checks) == len(ran.histories)


async def test_a_state_that_another_run_carried_is_found(client: Client) -> None:
    ran = await a_run(client, EACH_ITERATION)
    runs = await histories(client, await run_chain(client, ran.handle.id))
    changed = RunHistory(str(uuid.uuid4()), runs[0].history)
    checks, _ = await check_histories(client, ran.handle.id, [changed, *runs[1:]])
    assert [check.detail for check in wrong(checks)] == ["today's code ends it otherwise, first in [1].carried_by"]


async def changed(client: Client, change: Callable[[HistoryEvent], None]) -> list[Check]:
    """Return the failed checks of a run after this change of its history."""
    ran = await a_run(client)
    [run] = await histories(client, await run_chain(client, ran.handle.id))
    events = [copy.deepcopy(event) for event in run.events]
    for event in events:
        change(event)
    altered = RunHistory(run.run_id, WorkflowHistory(ran.handle.id, events))
    checks, _ = await check_histories(client, ran.handle.id, [altered])
    return wrong(checks)


def rename_the_tool(event: HistoryEvent) -> None:
    if event.activity_task_scheduled_event_attributes.activity_type.name == "look":
        event.activity_task_scheduled_event_attributes.activity_type.name = "glance"


def change_the_first_reply(event: HistoryEvent) -> None:
    if event.event_type == COMPLETED:
        payload = event.activity_task_completed_event_attributes.result.payloads[0]
        payload.data = payload.data.replace(b'"first"', b'"worst"')


def add_to_the_result(event: HistoryEvent) -> None:
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        payload = event.workflow_execution_completed_event_attributes.result.payloads[0]
        result = from_json(payload.data)
        result["usage"]["input_tokens"] += 1
        payload.data = to_json(result)


def break_the_setup(event: HistoryEvent) -> None:
    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        attributes = event.activity_task_scheduled_event_attributes
        if attributes.activity_type.name == "reason":
            attributes.input.payloads[0].data = b'{"iteration": "none"}'


@pytest.mark.parametrize(
    ("change", "names", "says"),
    [
        pytest.param(rename_the_tool, {"replay"}, "ondeterminism", id="another activity than the code schedules"),
        pytest.param(change_the_first_reply, {"contexts", "ending"}, "iteration 2", id="a reply of other words"),
        pytest.param(add_to_the_result, {"ending", "counters"}, "counted 400", id="a result of more tokens"),
        pytest.param(break_the_setup, {"contexts", "journal"}, "ValidationError", id="no request at all"),
    ],
)
async def test_a_changed_event_is_found(
    client: Client, change: Callable[[HistoryEvent], None], names: set[str], says: str
) -> None:
    found = await changed(client, change)
    assert names <= {check.name for check in found}
    assert any(says in check.detail for check in found), found


def edited(journal: list[JournalEntry]) -> list[JournalEntry]:
    """Change one word and nothing else."""
    entry = journal[2]
    return [*journal[:2], entry.model_copy(update={"agent": "mallory"}), *journal[3:]]


def forged(journal: list[JournalEntry]) -> list[JournalEntry]:
    """Change one word and rebuild the chain, so that the export alone shows nothing."""
    entries: list[JournalEntry] = []
    previous = ""
    for entry in edited(journal):
        previous = entry_hash(previous, entry)
        entries.append(entry.model_copy(update={"hash": previous}))
    return entries


def without_its_tail(journal: list[JournalEntry]) -> list[JournalEntry]:
    return journal[:-1]


def emptied(_: list[JournalEntry]) -> list[JournalEntry]:
    return []


def with_a_gap(journal: list[JournalEntry]) -> list[JournalEntry]:
    return [*journal[:3], *journal[4:]]


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        pytest.param(edited, "its chain breaks at entry 2", id="an edited entry"),
        pytest.param(forged, "entry 2 differs from the history in agent", id="an entry with a rebuilt chain"),
        pytest.param(without_its_tail, "the tail is missing", id="a dropped tail"),
        pytest.param(emptied, "it ends after 0 of", id="nothing at all"),
        pytest.param(with_a_gap, "its chain breaks at entry 4", id="a gap"),
    ],
)
async def test_a_tampered_export_is_found(
    client: Client, tamper: Callable[[list[JournalEntry]], list[JournalEntry]], says: str
) -> None:
    ran = await a_run(client)
    [found] = wrong((await verify(client, ran.handle.id, exported=tamper(ran.journal))).checks)
    assert found.name == "export"
    assert says in found.detail


async def test_a_chain_reports_that_the_server_deleted_its_oldest_segment(client: Client) -> None:
    ran = await a_run(client, EACH_ITERATION)
    chain = await run_chain(client, ran.handle.id)
    await forgotten(client, ran.handle.id, chain.run_ids[0])
    journal = [entry async for entry in read_journal(client, ran.handle.id)]

    assert journal[0].event == "PastMissing"
    assert "end of iteration 1" in journal[0].data["detail"]
    assert journal[-1].event == "Terminated"
    assert wrong((await verify(client, ran.handle.id, exported=journal)).checks) == []


async def forgotten(client: Client, workflow_id: str, run_id: str) -> None:
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    )

    async def is_gone() -> bool:
        try:
            await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        except RPCError:
            return True
        return False

    await wait_until(is_gone, within_s=100)


async def test_a_terminated_run_is_verified_up_to_its_last_event(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.terminate(reason="by hand")

    found = await verify(client, handle.id)
    assert wrong(found.checks) == []
    assert [check.name for check in found.checks] == ["replay", "gate", "contexts", "journal"]
