"""A fork is a new run that shares another run's past up to an iteration and continues on its own."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.client.errors import OrgaError
from orga.client.history.chain import NoSuchIteration
from orga.client.past.fork import fork
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Message
from orga.workflows.types.record import InvalidInput
from tests.support.hold import Hold
from tests.support.knowledge.items import a_fact
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.knowing import blocks, event_data, store
from tests.support.runs.loop import WORKER_FACTS, Ran, a_loop
from tests.support.runs.questions import send_update
from tests.support.runs.rewound import wait_for_rewound
from tests.support.tools.lookups import issues

__all__ = ["store"]

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


def looks(*numbers: int, **fields: Any) -> list[Any]:
    return [calls("look", arguments={"n": n}, reply_text=f"step {n}", **fields) for n in numbers]


def a_look() -> FakeTool:
    return FakeTool("look", lambda arguments, context: f"result {arguments['n']}", effect="idempotent")


def seen(provider: ScriptedModel, call: int) -> tuple[Message, ...]:
    return tuple(provider.seen[call].messages)


@pytest.mark.parametrize("setup", [WORKER_FACTS, EACH_ITERATION], ids=["one run", "a chain of runs"])
@pytest.mark.parametrize("iteration", [0, 1, 2])
async def test_a_fork_shares_the_past_and_leaves_the_other_run_unchanged(
    client: Client, iteration: int, setup: Any
) -> None:
    """Its next model call sees the same messages as the other run's did. Spending continues from there."""
    provider = ScriptedModel(
        [*looks(1, 2, reply_cost_usd=0.5), answers("first"), answers("second", cost_usd=0.25)], repeats=True
    )
    async with a_loop(client, provider, a_look(), setup=setup) as loop:
        first = await loop.run()
        ran = await wait_for_rewound(client, await fork(client, first.handle.id, iteration))

    assert seen(provider, 3) == seen(provider, iteration)
    assert (ran.result.output, ran.result.iterations) == ("second", iteration + 1)
    assert ran.result.usage.model_calls == iteration + 1
    assert ran.result.usage.cost_usd == 0.5 * iteration + 0.25
    assert ran.result.tool_calls.run == iteration
    assert (await AgentHandle(client, first.handle.id).result()).output == "first"
    assert ran.journal[0].data["forked_from"] == {
        "workflow_id": first.handle.id,
        "run_id": first.histories[min(iteration, len(first.histories) - 1)].run_id,
        "iteration": iteration,
    }


async def test_a_fork_that_continues_as_new_is_still_a_fork(client: Client) -> None:
    provider = ScriptedModel([*looks(1, 2, 3), answers()], repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        first = await loop.run()
    provider = ScriptedModel([*looks(2, 3), answers("forked")], repeats=True)
    async with a_loop(client, provider, a_look(), setup=EACH_ITERATION, task_queue=loop.task_queue):
        ran = await wait_for_rewound(client, await fork(client, first.handle.id, 1))

    assert (ran.result.output, ran.result.iterations, len(ran.histories)) == ("forked", 4, 3)
    assert [entry.event for entry in ran.journal].count("Started") == 1


async def test_a_fork_has_its_own_idempotency_keys(client: Client) -> None:
    look = a_look()
    async with a_loop(client, [*looks(1, 2), answers(), *looks(2), answers()], look) as loop:
        first = await loop.run()
        await wait_for_rewound(client, await fork(client, first.handle.id, 1))

    keys = [context.idempotency_key for context in look.contexts]
    assert len(set(keys)) == len(keys) == 3


async def test_settings_of_a_fork_override_the_old_ones_and_the_rest_stays(client: Client) -> None:
    provider = ScriptedModel([*looks(1, 2, 3), *looks(4)], repeats=True)
    changes = {"model": "scripted:other", "instructions": "Be brief.", "config": {"max_iterations": 2}}
    async with a_loop(client, provider, a_look()) as loop:
        first = await loop.run({"task": "t", "instructions": "Be long."}, max_iterations=3, temperature=0.7)
        ran = await wait_for_rewound(client, await fork(client, first.handle.id, 1, changes=changes))

    request = provider.seen[-1]
    assert (first.result.iterations, ran.result.iterations) == (3, 2)
    assert ran.result.termination.reason == "max_iterations"
    assert (request.model, request.system[0], request.settings.temperature) == ("scripted:other", "Be brief.", 0.7)
    assert ran.journal[0].data["input"]["model"] == "scripted:other"


async def test_a_fork_of_an_ended_run_can_raise_the_limit_that_ended_it(client: Client) -> None:
    provider = ScriptedModel([*looks(1, 2), answers("done")], repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        first = await loop.run(max_iterations=2)
        run = await fork(client, first.handle.id, 2, changes={"config": {"max_iterations": 5}})
        ran = await wait_for_rewound(client, run)

    assert (first.result.termination.reason, ran.result.termination.reason) == ("max_iterations", "completed")
    assert [message.text for message in seen(provider, 2)[1:]] == ["step 1", "result 1", "step 2", "result 2"]


async def test_a_fork_knows_a_decision_made_just_before_its_start(client: Client) -> None:
    """The denial and the next model call belong to the same workflow task."""
    provider = ScriptedModel([calls("pay"), answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider, FakeTool("pay", effect="irreversible"), engine=Asks()) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "deny", approval_argument(question, reason="too much"))
        await loop.ended(handle)
        await wait_for_rewound(client, await fork(client, handle.id, 1))
    assert seen(provider, 2) == seen(provider, 1)


async def test_a_fork_can_ask_further_about_an_answer(client: Client) -> None:
    provider = ScriptedModel([answers("42"), answers("because")], repeats=True)
    async with a_loop(client, provider) as loop:
        first = await loop.run("how many?")
        with pytest.raises(OrgaError, match="give the fork a --task"):
            await fork(client, first.handle.id, 1)
        ran = await wait_for_rewound(
            client, await fork(client, first.handle.id, 1, task="why?", new_id=f"{first.handle.id}-why")
        )

    assert [(message.role, message.text) for message in seen(provider, 1)] == [
        ("user", "how many?"),
        ("assistant", "42"),
        ("user", "why?"),
    ]
    assert (ran.result.output, ran.handle.id) == ("because", f"{first.handle.id}-why")
    assert ran.journal[0].data["task"] == "why?"


async def test_a_new_task_at_iteration_0_replaces_the_old_one(client: Client) -> None:
    """This also holds for a fork of that fork, and the references of the old task are not shown."""
    provider = ScriptedModel([answers("first"), answers("second"), answers("third")], repeats=True)
    async with a_loop(client, provider, issues()) as loop:
        first = await loop.run("What is #1?")
        second = await wait_for_rewound(client, await fork(client, first.handle.id, 0, task="What is #2?"))
        third = await wait_for_rewound(client, await fork(client, second.handle.id, 0, task="What is #3?"))
    for call in (1, 2):
        task, block = [message.text for message in seen(provider, call)]
        assert (task, f"issue #{call + 1}" in block, "#1" in block) == (f"What is #{call + 1}?", True, False)
    assert (third.result.output, third.journal[0].data["task"]) == ("third", "What is #3?")


@pytest.mark.parametrize(
    ("iteration", "wish", "setup"),
    [
        pytest.param(0, {}, WORKER_FACTS, id="at the beginning"),
        pytest.param(0, {"task": "On which host is billing?"}, EACH_ITERATION, id="at the beginning, with a new task"),
        pytest.param(1, {}, WORKER_FACTS, id="after the block was replaced"),
        pytest.param(2, {"task": "On which host is billing?"}, WORKER_FACTS, id="after the block was dropped"),
        pytest.param(2, {}, EACH_ITERATION, id="in a chain of runs"),
    ],
)
async def test_a_run_with_recalled_knowledge_can_be_forked(
    client: Client, store: SqliteStore, iteration: int, wish: dict[str, Any], setup: Any
) -> None:
    """The recalled items change from step to step. The fork recalls by itself."""
    await store.store([a_fact("The billing service", "listens on", "port 8441"), a_fact("Penguins", "live in", "ice")])
    look = FakeTool("look", lambda arguments, _: f"more of {arguments['about']}")
    steps = [calls("look", about=about) for about in ("penguins", "hospitals")]
    async with a_loop(client, [*steps, answers("one"), answers("two")], look, knowledge=store, setup=setup) as loop:
        first = await loop.run("On which port does billing listen?", knowledge={"auto_persist": False})
        forked = await wait_for_rewound(client, await fork(client, first.handle.id, iteration, **wish))
        verified = await verify(client, forked.handle.id)
    assert (forked.result.termination.reason, verified.ok) == ("completed", True)
    assert len(event_data(first, "KnowledgeRecalled")) > 1
    assert isinstance(loop.provider, ScriptedModel)
    assert [len(blocks(request)) for request in loop.provider.given[3:]] == [1]


async def test_a_live_run_can_be_forked_with_its_remaining_time(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel([*looks(1), hold.step(answers("never")), answers("forked")], repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        handle = await loop.start()
        await hold.reached()
        ran = await wait_for_rewound(client, await fork(client, handle.id, 1))
        await handle.signal("abort")
        aborted: Ran = await loop.ended(handle)

    assert (ran.result.output, aborted.result.termination.reason) == ("forked", "aborted")
    assert 0 < ran.result.duration_s < 20


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"config": {"max_iteration": 3}}, "config.max_iteration: unknown key", id="an unknown setting"),
        pytest.param({"modell": "x"}, "modell: unknown key", id="an unknown key"),
        pytest.param({"config": {"timeout_s": 0}}, "config.timeout_s", id="a value that is not allowed"),
    ],
)
async def test_bad_settings_start_no_fork(client: Client, changes: dict[str, Any], says: str) -> None:
    async with a_loop(client, [*looks(1), answers()], a_look()) as loop:
        first = await loop.run()
        with pytest.raises(InvalidInput, match=says):
            await fork(client, first.handle.id, 1, changes=changes)
        with pytest.raises(NoSuchIteration):
            await fork(client, first.handle.id, 7)
