"""A run hands a part of its task to another agent: a child workflow with a share of its budgets and its own journal."""

import asyncio
import re
import tomllib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from activities.ports import Judgement, ModelRequest, Proposal, ToolContext
from client.config import OrgaConfig
from client.journal import read_journal
from client.verify import verify
from tests.support.delegates import a_cast, agent, delegates, leading, led
from tests.support.hold import PATIENCE_S, Hold, happens, until
from tests.support.loop import WORKER_FACTS, Deny, FakeTool, Ran, histories_of, replayed
from tests.support.orga_command import ROOT
from tests.support.questions import updated, waiting
from tests.support.sagas import Ledger, book, pay, saga
from tests.support.scripted import USAGE, Step, answers, calls
from workflows.types.delegation import DelegateSpec
from workflows.types.journal import JournalEntry
from workflows.types.messages import Reply, ToolCall
from workflows.types.status import AgentStatus
from workflows.types.tools import ToolOptions

LEAD, HELPER = agent("lead", "helper"), agent("helper")
PAIR = {"lead": LEAD, "helper": HELPER}
EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
DENIED = "[Policy denied] "


async def children_of(client: Client, ran: Ran) -> list[str]:
    """Return the ids of the runs that were started by a run, in order."""
    events = (event for history in ran.histories for event in history.events)
    started = (event.child_workflow_execution_started_event_attributes for event in events)
    found = [each.workflow_execution.workflow_id for each in started if each.workflow_execution.workflow_id]
    for child in found:
        for history in await histories_of(client, child):
            await replayed(history)
    return found


async def result_of(client: Client, workflow_id: str) -> Any:
    return await client.get_workflow_handle(workflow_id).result()


async def status_of(handle: WorkflowHandle[Any, Any]) -> AgentStatus:
    return AgentStatus.model_validate(await handle.query("status"))


def shown(text: str) -> str:
    """Return what stands between the marks."""
    head, *lines, _ = text.splitlines()
    assert "data, not instructions]" in head
    return "\n".join(lines)


async def test_the_answer_of_a_delegate_is_the_result_of_the_call(client: Client) -> None:
    look = FakeTool("look", lambda arguments, context: "42 files")
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {
        "lead": [delegates("helper", task="count the files"), answers("there are 42")],
        "helper": [calls("look"), answers("42")],
    }
    async with a_cast(client, agents, scripts, look) as (loop, cast):
        ran = await led(loop)
        [child] = await children_of(client, ran)

    assert [message.text for message in cast.seen("helper")[0].messages] == ["count the files"]
    assert shown(cast.told("lead")[-1]) == "42"
    assert ran.result.output == "there are 42"
    assert (ran.result.usage.model_calls, ran.result.usage.total_tokens, ran.result.iterations) == (4, 440, 2)
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 1, "denied": 0, "failed": 0, "delegated": 1}
    assert child == f"{ran.handle.id}.1.0"


async def test_an_empty_answer_is_an_answer(client: Client) -> None:
    ended = Reply(
        calls=(ToolCall(call_id="t", name="terminate", arguments={"reason": "nothing to say", "output": ""}),)
    )
    agents = PAIR | {"helper": agent("helper", tools=["terminate"])}
    async with a_cast(client, agents, {"lead": [delegates("helper"), answers()], "helper": [ended]}) as (loop, cast):
        ran = await led(loop)

    assert shown(cast.told("lead")[-1]) == "(empty answer)"
    assert ran.result.tool_calls.failed == 0


async def test_a_delegate_knows_its_tenant_and_what_is_trusted(client: Client) -> None:
    seen: list[Proposal] = []

    class Watching:
        async def judge(self, proposal: Proposal) -> Judgement:
            seen.append(proposal)
            return Judgement(True)

    scripts = {"lead": [delegates("helper"), answers()], "helper": [answers()]}
    async with a_cast(client, PAIR, scripts, engine=Watching()) as (loop, _):
        await loop.run({"task": "t", "agent": "lead", "tenant": "acme", "trusted_context": {"clearance": 2}})

    assert [(p.agent, p.tenant, p.trusted_context) for p in seen] == [
        (name, "acme", {"clearance": 2}) for name in ("lead", "helper", "lead")
    ]
    assert list(seen[0].delegates) == [DelegateSpec(agent="helper")]


@pytest.mark.parametrize(
    ("agents", "target", "config", "said"),
    [
        pytest.param(PAIR, "nobody", {}, "[Invalid call] the arguments of delegate do not fit", id="unknown"),
        pytest.param(PAIR, "helper", {"max_delegation_depth": 0}, "[Not run] 0 delegations lead here", id="depth"),
        pytest.param(PAIR, "helper", {"max_iterations": 1}, "[Not run] nothing is left to delegate with", id="budget"),
    ],
)
async def test_what_cannot_be_delegated_is_told_and_no_run_is_started(
    client: Client, agents: Any, target: str, config: dict[str, Any], said: str
) -> None:
    async with a_cast(client, agents, {"lead": [delegates(target), answers()], "helper": [answers()]}) as (loop, cast):
        ran = await led(loop, **config)
        assert await children_of(client, ran) == []
        told = [message["text"] for message in await ran.handle.query("conversation") if message["role"] == "tool"]

    assert told[0].startswith(said)
    assert cast.seen("helper") == []
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 0, "denied": 1, "failed": 0}


async def test_an_agent_that_waits_for_this_is_not_delegated_to_again(client: Client) -> None:
    agents = PAIR | {"helper": agent("helper", "lead")}
    scripts = {"lead": [delegates("helper"), answers()], "helper": [delegates("lead"), answers("alone")]}
    async with a_cast(client, agents, scripts) as (loop, cast):
        ran = await led(loop)
        [child] = await children_of(client, ran)
        assert (await result_of(client, child))["tool_calls"]["run"] == 0

    expected = "[Not run] agent 'lead' waits for this already (lead > helper); do it yourself or choose another"
    assert cast.told("helper") == ["", expected]
    assert shown(cast.told("lead")[-1]) == "alone"


async def test_a_denied_delegation_is_told_and_starts_nothing(client: Client) -> None:
    scripts = {"lead": [delegates("helper"), answers()], "helper": [answers()]}
    async with a_cast(client, PAIR, scripts, engine=Deny("delegate")) as (loop, cast):
        ran = await led(loop)
        assert await children_of(client, ran) == []

    assert cast.told("lead")[-1] == f"{DENIED}delegate is forbidden"
    assert ran.result.tool_calls.denied == 1


@pytest.mark.parametrize("by", ["config", "gate", "both"])
async def test_a_delegate_has_no_tool_that_is_not_left_to_it(client: Client, by: str) -> None:
    class Narrowing:
        async def judge(self, proposal: Proposal) -> Judgement:
            is_delegation = proposal.call is not None and proposal.call.name == "delegate"
            return (
                Judgement(True, tools=("look", "send") if by == "both" else ("look",))
                if is_delegation
                else Judgement(True)
            )

    look, send = FakeTool("look"), FakeTool("send")
    left = {"agent": "helper", "tools": ["look"]}
    agents = {
        "lead": agent("lead", "helper" if by == "gate" else left),
        "helper": agent("helper", tools=["look", "send"]),
    }
    scripts = {"lead": [delegates("helper"), answers()], "helper": [calls("look", "send"), answers("could not send")]}
    engine = None if by == "config" else Narrowing()
    async with a_cast(client, agents, scripts, look, send, engine=engine) as (loop, cast):
        await led(loop)

    assert [tool.name for tool in cast.seen("helper")[0].tools] == ["look"]
    assert cast.told("helper")[-1] == "[Invalid call] there is no tool 'send'; the tools are: look"
    assert (len(look.contexts), len(send.contexts)) == (1, 0)


async def test_a_delegates_own_delegate_can_only_have_less(client: Client) -> None:
    agents = {
        "lead": agent("lead", {"agent": "helper", "tools": ["look", "delegate"]}),
        "helper": agent("helper", {"agent": "hand", "tools": ["look", "send"]}, tools=["look"]),
        "hand": agent("hand", tools=["look", "send"]),
    }
    scripts = {
        "lead": [delegates("helper"), answers("done")],
        "helper": [delegates("hand"), answers("handed on")],
        "hand": [calls("look"), answers("seen")],
    }
    async with a_cast(client, agents, scripts, FakeTool("look"), FakeTool("send")) as (loop, cast):
        ran = await led(loop)
        [child] = await children_of(client, ran)

    assert [tool.name for tool in cast.seen("hand")[0].tools] == ["look"]
    assert shown(cast.told("helper")[-1]) == "seen"
    assert shown(cast.told("lead")[-1]) == "handed on"
    assert (ran.result.usage.model_calls, ran.result.tool_calls.delegated) == (6, 2)
    [started] = [entry for entry in ran.journal if entry.event == "Started" and entry.agent == "hand"]
    assert started.data["run"] == f"{child}.1.0"
    assert started.data["input"]["lineage"]["chain"] == ["lead", "helper"]


async def test_a_delegate_stops_at_its_share_and_the_parent_has_what_it_had(client: Client) -> None:
    """The limit of the parent is overspent by the one reply that reached it."""
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers("enough")], "helper": [calls("look", text="so far")]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        ran = await led(loop, max_total_tokens=500)
        [child] = await children_of(client, ran)
        ended = await result_of(client, child)

    assert ended["termination"] == {"reason": "max_tokens", "detail": "440 of 390 tokens"}
    assert ran.result.termination.reason == "max_tokens"
    assert ran.result.usage.total_tokens == 110 + 440
    assert len(cast.seen("lead")) == 1
    outcome = next(entry for entry in ran.journal if entry.event == "ObservationsCollected" and "run" not in entry.data)
    assert outcome.data["outcomes"][0]["outcome"] == "failed"


async def test_parallel_delegates_share_and_what_is_left_over_is_back(client: Client) -> None:
    scripts = {
        "lead": [delegates("helper", "helper"), delegates("helper"), answers("done")],
        "helper": [answers("quick")],
    }
    async with a_cast(client, PAIR, scripts) as (loop, _):
        ran = await led(loop, max_total_tokens=2_000, max_model_calls=12, max_tool_calls=10)
        await children_of(client, ran)

    started = [entry for entry in ran.journal if entry.event == "Started" and "run" in entry.data]
    ceilings = [entry.data["input"]["lineage"]["ceiling"] for entry in started]
    assert [ceiling["max_total_tokens"] for ceiling in ceilings] == [945, 945, 1_560]
    assert [ceiling["max_model_calls"] for ceiling in ceilings] == [5, 5, 7]
    assert [ceiling["max_tool_calls"] for ceiling in ceilings] == [4, 4, 7]
    assert ran.result.usage.total_tokens == 660


async def test_delegates_of_one_reply_run_side_by_side_and_answer_in_call_order(client: Client) -> None:
    """Each waits for the other."""
    begun = {"1": asyncio.Event(), "2": asyncio.Event()}

    def meeting(mine: str, other: str) -> Callable[[ModelRequest], Awaitable[Reply]]:
        async def step(request: ModelRequest) -> Reply:
            begun[mine].set()
            await happens(begun[other])
            return answers(mine)

        return step

    agents = {"lead": agent("lead", "one", "two"), "one": agent("one"), "two": agent("two")}
    scripts: dict[str, list[Step]] = {
        "lead": [delegates("one", "two"), answers()],
        "one": [meeting("1", "2")],
        "two": [meeting("2", "1")],
    }
    async with a_cast(client, agents, scripts) as (loop, cast):
        ran = await led(loop)
        assert len(await children_of(client, ran)) == 2

    assert [shown(text) for text in cast.told("lead")[-2:]] == ["1", "2"]


async def test_delegates_keep_to_max_concurrent_tools(client: Client) -> None:
    """A delegate takes a slot of its parent's, never two: its own calls have the slots of its own run."""
    at_once: list[int] = []
    running = 0

    async def work(request: Any) -> Reply:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.2)
        running -= 1
        return answers("done")

    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper", "helper", "helper"), answers()], "helper": [work]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, _):
        ran = await led(loop, max_concurrent_tools=1)

    assert at_once == [1, 1, 1]
    assert ran.result.tool_calls.run == 3


async def test_a_delegate_whose_chain_goes_on_as_new_has_one_result_and_one_journal(client: Client) -> None:
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {
        "lead": [delegates("helper"), answers("done")],
        "helper": [calls("look"), calls("look"), answers("found")],
    }
    async with a_cast(client, agents, scripts, FakeTool("look"), setup=EACH_ITERATION) as (loop, cast):
        ran = await led(loop)
        [child] = await children_of(client, ran)
        assert len(await histories_of(client, child)) == 3

    assert shown(cast.told("lead")[-1]) == "found"
    iterations = [e.iteration for e in ran.journal if e.data.get("run") == child and e.event == "ReasoningComplete"]
    assert iterations == [1, 2, 3]


async def test_guidance_reaches_the_delegate_at_work_and_its_parent_afterwards(client: Client) -> None:
    hold = Hold()
    scripts = {
        "lead": [delegates("helper"), answers("as you wish")],
        "helper": [hold.step(answers("first")), answers("second")],
    }
    async with a_cast(client, PAIR, scripts) as (loop, cast):
        handle = await leading(loop)
        await hold.reached()
        for number in range(3):
            await handle.signal("steer", f"steer {number}")
        await handle.signal("add_context", "a fact")
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        await until(lambda: _has_unread(child, 4))
        hold.go.set()
        ran = await loop.ended(handle)
        await children_of(client, ran)

    guidance = [f"[Guidance from the operator] steer {number}" for number in range(3)]
    expected = [*guidance, "[Context from the operator]\na fact"]
    assert cast.told("helper") == ["first", *expected]
    assert cast.told("lead")[-4:] == expected
    assert shown(cast.told("lead")[-5]) == "second"


async def _has_unread(handle: WorkflowHandle[Any, Any], count: int) -> bool:
    return len((await status_of(handle)).unread_interventions) == count


async def _is_paused(handle: WorkflowHandle[Any, Any], paused: bool = True) -> bool:
    return (await status_of(handle)).paused is paused


async def test_a_pause_holds_the_delegate_too_until_the_resume(client: Client) -> None:
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers()], "helper": [hold.step(calls("look")), answers("done")]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        handle = await leading(loop)
        await hold.reached()
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        status = await status_of(handle)
        assert [(c.agent, c.task, c.workflow_id) for c in status.children] == [("helper", "do it", child.id)]
        await handle.signal("pause")
        await until(lambda: _is_paused(child))
        hold.go.set()
        await until(lambda: _stands_still(child))
        assert len(cast.seen("helper")) == 1
        await handle.signal("resume")
        ran = await loop.ended(handle)
        await children_of(client, ran)

    assert shown(cast.told("lead")[-1]) == "done"


async def test_a_delegate_that_starts_while_its_parent_is_paused_is_paused(client: Client) -> None:
    """The parent is paused while the delegate waits for its turn."""
    hold = Hold()
    slow = FakeTool("slow", lambda arguments, context: hold.then("slow"))
    both = Reply(
        calls=(ToolCall(call_id="s", name="slow"), *delegates("helper").calls), finish="tool_calls", usage=USAGE
    )
    agents = PAIR | {"lead": agent("lead", "helper", tools=["slow"])}
    async with a_cast(client, agents, {"lead": [both, answers()], "helper": [answers("late")]}, slow) as (loop, cast):
        handle = await leading(loop, max_concurrent_tools=1)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        child = client.get_workflow_handle(f"{handle.id}.1.1")
        await until(lambda: _exists(child))
        await until(lambda: _is_paused(child))
        await handle.signal("resume")
        await loop.ended(handle)

    assert shown(cast.told("lead")[-1]) == "late"


async def _stands_still(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await status_of(handle)).phase == "paused"


async def _exists(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        await handle.describe()
    except RPCError:
        return False
    return True


async def test_an_abort_reaches_the_delegate_and_what_it_had_is_kept(client: Client) -> None:
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper")], "helper": [calls("look"), hold.step(answers())]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, _):
        handle = await leading(loop)
        await hold.reached()
        await handle.signal("abort", "too slow")
        await happens(hold.cancelled, within_s=3)
        ran = await loop.ended(handle)
        [child] = await children_of(client, ran)
        ended = await result_of(client, child)
        told = (await ran.handle.query("conversation"))[-1]["text"]

    assert ran.result.termination.reason == "aborted"
    assert ended["termination"] == {"reason": "aborted", "detail": "the run that delegated is ending: too slow"}
    assert (ran.result.usage.model_calls, ran.result.tool_calls.delegated) == (2, 1)
    assert told.startswith("[Error] agent 'helper' did not finish: aborted")


async def test_temporals_own_cancellation_reaches_the_delegate_as_an_abort(client: Client) -> None:
    hold = Hold()
    async with a_cast(client, PAIR, {"lead": [delegates("helper")], "helper": [hold.step(answers())]}) as (loop, _):
        handle = await leading(loop)
        await hold.reached()
        await handle.cancel()
        await happens(hold.cancelled, within_s=3)
        ran = await loop.ended(handle)

    assert ran.result.termination.detail == "cancelled"
    assert [entry.data["reason"] for entry in ran.journal if entry.event == "DelegationEnded"] == ["aborted"]


async def test_a_delegate_that_does_not_end_within_the_grace_does_not_hold_the_abort(client: Client) -> None:
    """Its tool ignores the cancellation, so its own grace is as long as its parent's."""
    hold = Hold()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await hold.then("never")
        except asyncio.CancelledError:
            await asyncio.sleep(9)
            return "late"

    agents = PAIR | {"helper": agent("helper", tools=["slow"])}
    scripts = {"lead": [delegates("helper")], "helper": [calls("slow")]}
    async with a_cast(client, agents, scripts, FakeTool("slow", stubborn)) as (loop, _):
        handle = await leading(loop)
        await hold.reached()
        async with asyncio.timeout(9):
            await handle.signal("abort")
            ran = await loop.ended(handle)

    assert ran.result.termination.reason == "aborted"


@pytest.mark.parametrize("by", ["abort", "terminate"])
async def test_a_delegates_saga_is_taken_back_to_the_end_behind_the_end_of_its_parent(client: Client, by: str) -> None:
    booking, cancelling = Hold(), Hold()
    ledger = Ledger({"book car": lambda: booking.then("never"), "cancel car": lambda: cancelling.then("cancelled")})
    agents = PAIR | {"helper": agent("helper", tools=["look", "book", "cancel", "pay", "saga"])}
    scripts = {"lead": [delegates("helper")], "helper": [saga(book("hotel"), book("car"), pay()), answers()]}
    async with a_cast(client, agents, scripts, *ledger.tools) as (loop, _):
        handle = await leading(loop)
        await booking.reached()
        await (handle.signal("abort") if by == "abort" else handle.terminate("by hand"))
        await cancelling.reached()
        with suppress(WorkflowFailureError):
            await handle.result()
        cancelling.go.set()
        ended = await result_of(client, f"{handle.id}.1.0")

    assert ended["termination"]["reason"] == "aborted"
    assert ledger.done == ["book hotel", "cancel hotel"]
    assert len(ledger.keys["cancel car"]) == 1


async def test_a_delegates_clock_ends_it_before_its_parents(client: Client) -> None:
    hold = Hold()
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers("in time")], "helper": [calls("look"), hold.step(answers())]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        ran = await led(loop, timeout_s=8)

    assert ran.result.termination.reason == "completed"
    assert cast.told("lead")[-1].startswith("[Error] agent 'helper' did not finish: timeout (limit of ")
    assert "it had no output. The outcome is unknown" in cast.told("lead")[-1]


async def test_a_delegate_that_fails_is_told_as_an_error(client: Client) -> None:
    """An agent that cannot be prepared fails its run; that of its parent goes on."""

    def known(model: str) -> None:
        if model == "scripted:helper":
            raise ValueError("no such model")

    scripts = {"lead": [delegates("helper"), answers("alone")], "helper": [answers()]}
    async with a_cast(client, PAIR, scripts, check_model=known) as (loop, cast):
        ran = await led(loop)

    assert ran.result.output == "alone"
    assert cast.told("lead")[-1].startswith(
        "[Error] agent 'helper' ended without a result: InvalidInput: model: no such model."
    )
    assert ran.result.tool_calls.failed == 1
    assert ran.result.usage.model_calls == 2


async def test_a_delegate_that_is_terminated_is_told_as_an_error(client: Client) -> None:
    hold = Hold()
    scripts = {"lead": [delegates("helper"), answers("alone")], "helper": [hold.step(answers())]}
    async with a_cast(client, PAIR, scripts) as (loop, cast):
        handle = await leading(loop)
        await hold.reached()
        await client.get_workflow_handle(f"{handle.id}.1.0").terminate(reason="by hand")
        ran = await loop.ended(handle)

    assert "[Error] agent 'helper' ended without a result: " in cast.told("lead")[-1]
    nested = [entry for entry in ran.journal if entry.data.get("run") == f"{handle.id}.1.0"]
    assert (nested[-1].event, nested[-1].data["detail"]) == ("Terminated", "by hand")


async def test_guidance_that_comes_too_late_for_the_delegate_is_still_read_by_the_parent(client: Client) -> None:
    """The delegate is not there any more when it is told."""
    hold = Hold()
    scripts = {"lead": [delegates("helper"), answers("both")], "helper": [hold.step(answers("mine"))]}
    async with a_cast(client, PAIR, scripts) as (loop, cast):
        handle = await leading(loop)
        await hold.reached()
        child = client.get_workflow_handle(f"{handle.id}.1.0")
        await asyncio.gather(child.terminate(), *(handle.signal("steer", f"{number}") for number in range(20)))
        ran = await loop.ended(handle)

    assert ran.result.output == "both"
    assert sorted(text.split()[-1] for text in cast.told("lead")[-20:]) == sorted(map(str, range(20)))


async def test_the_recovery_of_the_delegate_tool_is_that_of_any_tool(client: Client) -> None:
    """A person has it tried again: another run, whose effects are those of the same call."""
    pay = FakeTool("pay", effect="idempotent")
    agents = {
        "lead": agent("lead", "helper", recovery={"strategy": "escalate"}),
        "helper": agent("helper", tools=["pay"], max_iterations=1),
    }
    scripts = {
        "lead": [delegates("helper"), answers("paid")],
        "helper": [calls("pay"), calls("pay"), answers("never asked")],
    }
    async with a_cast(client, agents, scripts, pay) as (loop, cast):
        handle = await leading(loop)
        first = await waiting(handle)
        assert "did not finish: max_iterations" in first["data"]["error"]
        await updated(handle, "resolve_escalation", {"escalation_id": first["wait_id"], "choice": "retry"})
        second = await waiting(handle)
        decision = {"escalation_id": second["wait_id"], "choice": "result", "result": "I paid it"}
        await updated(handle, "resolve_escalation", decision)
        ran = await loop.ended(handle)
        assert await children_of(client, ran) == [f"{handle.id}.1.0", f"{handle.id}.1.0.r1"]

    assert "I paid it" in cast.told("lead")[-1]
    assert len({context.idempotency_key for context in pay.contexts}) == 1
    assert ran.result.usage.model_calls == 4


async def test_an_agent_without_delegates_has_nothing_to_delegate_with(client: Client) -> None:
    agents = PAIR | {"lead": agent("lead")}
    async with a_cast(client, agents, {"lead": [delegates("helper"), answers()]}) as (loop, cast):
        ran = await led(loop)
        assert await children_of(client, ran) == []

    assert cast.told("lead")[-1] == "[Invalid call] there is no tool 'delegate'; the tools are: none"


async def test_children_are_nested_in_the_journal_before_their_end(client: Client) -> None:
    ready = asyncio.Event()

    async def last(request: Any) -> Reply:
        await happens(ready)
        return answers("one")

    async def first(request: Any) -> Reply:
        ready.set()
        return answers("two")

    agents = {"lead": agent("lead", "one", "two"), "one": agent("one"), "two": agent("two")}
    scripts = {"lead": [delegates("one", "two"), answers()], "one": [last], "two": [first]}
    async with a_cast(client, agents, scripts) as (loop, _):
        handle = await leading(loop)
        followed = asyncio.create_task(_followed(client, handle.id))
        ran = await loop.ended(handle)
        again = [entry async for entry in read_journal(client, handle.id)]

    own = ["Started", "ReasoningComplete", "PolicyEvaluated", "Terminated"]
    told = [(entry.agent, entry.event) for entry in ran.journal]
    start = told.index(("lead", "DelegationStarted"))
    ended = [i for i, step in enumerate(told) if step == ("lead", "DelegationEnded")]
    assert told[start + 1] == ("lead", "DelegationStarted")
    first_nested, second_nested = told[start + 2 : ended[0]], told[ended[0] + 1 : ended[1]]
    assert {first_nested[0][0], second_nested[0][0]} == {"one", "two"}
    for nested in (first_nested, second_nested):
        assert [event for _, event in nested if event in own] == own
        assert len({name for name, _ in nested}) == 1
    for i in ended:
        assert ran.journal[i - 1].data["run"] == ran.journal[i].data["workflow_id"]
    assert ran.journal == again == await followed
    usage = ran.journal[ended[0]].data["usage"]
    assert (usage["total_tokens"], ran.journal[ended[0]].data["reason"]) == (110, "completed")


async def _followed(client: Client, workflow_id: str) -> list[JournalEntry]:
    return [entry async for entry in read_journal(client, workflow_id, follow=True)]


async def test_nothing_is_wrong_with_a_run_that_delegated_nor_with_its_exported_journal(client: Client) -> None:
    agents = PAIR | {"helper": agent("helper", "hand"), "hand": agent("hand")}
    scripts = {
        "lead": [delegates("helper", "helper"), answers("done")],
        "helper": [delegates("hand"), delegates("hand"), answers("handed on")],
        "hand": [answers("seen")],
    }
    async with a_cast(client, agents, scripts) as (loop, _):
        ran = await led(loop)
    found = await verify(client, ran.handle.id, exported=ran.journal)

    assert [check for check in found.checks if not check.ok] == []
    assert {check.workflow_id for check in found.checks} == {
        ran.handle.id + below for below in ("", ".1.0", ".1.1", ".1.0.1.0", ".1.1.1.0")
    }


async def test_the_agents_of_the_guide_delegate_as_it_says(client: Client) -> None:
    text = (ROOT / "docs" / "delegation.md").read_text()
    [block] = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    config = OrgaConfig.model_validate(tomllib.loads(block), extra="forbid")
    agents = {name: known.model_copy(update={"model": f"scripted:{name}"}) for name, known in config.agents.items()}
    tools = [FakeTool(name) for name in ("list_files", "read_file", "search_text", "write_file")]
    scripts = {
        "lead": [delegates("reader", "writer"), answers("done")],
        "reader": [calls("search_text"), answers("a.txt:3")],
        "writer": [calls("write_file"), calls("read_file"), answers("written")],
    }
    async with a_cast(client, agents, scripts, *tools) as (loop, cast):
        ran = await led(loop)

    assert [shown(text) for text in cast.told("lead")[-2:]] == ["a.txt:3", "written"]
    assert [tool.name for tool in cast.seen("writer")[0].tools] == ["write_file"]
    assert "- reader: Finds a passage" in cast.seen("lead")[0].tools[-1].description
    assert ran.result.tool_calls.delegated == 2


async def test_a_run_does_not_wait_for_ever_for_a_delegate_that_nobody_works_on(client: Client) -> None:
    """The delegate's tool has no worker and no time limit to speak of."""
    nowhere = FakeTool("nowhere", options=ToolOptions(task_queue="nobody-polls-this", timeout_s=3_600))
    agents = PAIR | {"helper": agent("helper", tools=["nowhere"])}
    scripts = {"lead": [delegates("helper"), answers("gave up")], "helper": [calls("nowhere"), answers()]}
    async with a_cast(client, agents, scripts, nowhere) as (loop, _):
        async with asyncio.timeout(PATIENCE_S):
            ran = await led(loop, timeout_s=5)

    assert ran.result.termination.reason in {"completed", "timeout"}
    assert ran.result.duration_s < 12
