"""A rewound parent delegates again: without a clash with live delegates, with the same keys and the right journal."""

from collections.abc import Sequence

from temporalio.client import Client, WorkflowExecutionStatus

from orga.client.past.rewind import plan_rewind, reset, rewind
from orga.client.runs.agents import AgentHandle
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from tests.support.hold import Hold
from tests.support.runs.delegates import Cast, a_cast, agent, delegates, run_lead, start_lead
from tests.support.runs.loop import Ran
from tests.support.runs.rewound import wait_for_rewound

AGENTS = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["pay"])}


def nested(ran: Ran) -> list[str]:
    """Return the answers of the delegates in the journal of a run."""
    reported = [entry for entry in ran.journal if entry.data.get("run") and entry.event == "ReasoningComplete"]
    return [action["respond"] for entry in reported for action in entry.data["actions"] if "respond" in action]


async def test_a_repeated_delegation_starts_a_new_run_with_the_same_keys(client: Client) -> None:
    pay = FakeTool("pay", effect="idempotent")
    helper: Sequence[Step] = [calls("pay"), answers("paid"), calls("pay"), answers("paid again")]
    scripts = {"lead": [delegates("helper"), answers("one"), delegates("helper"), answers("two")], "helper": helper}
    async with a_cast(client, AGENTS, scripts, pay) as (loop, _):
        first = await run_lead(loop)
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 0))

    assert (nested(first), nested(ran)) == (["paid"], ["paid again"])
    assert (ran.result.output, ran.result.usage.model_calls) == ("two", 4)
    assert len(pay.contexts) == 2
    assert len({context.idempotency_key for context in pay.contexts}) == 1


async def test_a_delegation_with_another_task_has_another_key(client: Client) -> None:
    pay = FakeTool("pay", effect="idempotent")
    lead = [delegates("helper", task="pay a"), answers("one"), delegates("helper", task="pay b"), answers("two")]
    scripts = {"lead": lead, "helper": [calls("pay"), answers("paid"), calls("pay"), answers("paid")]}
    async with a_cast(client, AGENTS, scripts, pay) as (loop, _):
        first = await run_lead(loop)
        await wait_for_rewound(client, await rewind(client, first.handle.id, 0))

    assert len({context.idempotency_key for context in pay.contexts}) == 2


async def test_a_delegate_left_running_by_another_tool_is_replaced_when_the_call_is_repeated(
    client: Client,
) -> None:
    """`orga rewind` would end it first."""
    hold = Hold()
    helper: Sequence[Step] = [hold.step(answers("never heard")), answers("anew")]
    scripts = {"lead": [delegates("helper"), delegates("helper"), answers("done")], "helper": helper}
    async with a_cast(client, AGENTS, scripts, FakeTool("pay")) as (loop, cast):
        handle = await start_lead(loop)
        await hold.reached()
        orphan = await client.get_workflow_handle(f"{handle.id}.1.0").describe()
        plan = await plan_rewind(client, handle.id, 0)
        await reset(client, plan.boundary, "by another tool", None, keeps_interventions=True)
        ran = await wait_for_rewound(client, AgentHandle(client, handle.id))
        left = await client.get_workflow_handle(orphan.id, run_id=orphan.run_id).describe()

    assert ran.result.output == "done"
    assert "anew" in _last(cast)
    assert nested(ran) == ["anew"]
    assert left.status == WorkflowExecutionStatus.TERMINATED


async def test_a_delegate_of_the_shared_past_stays_in_the_journal(client: Client) -> None:
    lead: Sequence[Step] = [delegates("helper"), calls("pay"), answers("one"), answers("two")]
    agents = AGENTS | {"lead": agent("lead", "helper", tools=["pay"])}
    scripts = {"lead": lead, "helper": [answers("kept")]}
    async with a_cast(client, agents, scripts, FakeTool("pay")) as (loop, cast):
        first = await run_lead(loop)
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 1))

    assert len(cast.seen("helper")) == 1
    assert (ran.result.output, ran.result.usage.model_calls) == ("two", 3)
    shared = [entry for entry in first.journal if entry.iteration <= 1][: _end(first)]
    assert ran.journal[: _end(first)] == shared
    assert nested(ran) == ["kept"]


async def test_a_delegate_after_the_rewind_point_is_not_in_the_journal(client: Client) -> None:
    hold = Hold()
    scripts = {"lead": [delegates("helper"), answers("without")], "helper": [hold.step(answers("late"))]}
    async with a_cast(client, AGENTS, scripts, FakeTool("pay")) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        ran = await wait_for_rewound(client, await rewind(client, handle.id, 0))

    assert (ran.result.output, nested(ran)) == ("without", [])


def _last(cast: Cast) -> str:
    return cast.messages_to("lead")[-1]


def _end(ran: Ran) -> int:
    """Return the number of journal entries up to the end of its delegation."""
    return [entry.event for entry in ran.journal].index("DelegationEnded") + 1
