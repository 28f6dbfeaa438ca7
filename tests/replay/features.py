"""Runs whose histories are recorded: they use the features around the loop."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.worker import PatchActivationInput

from orga import DeferredTool
from orga.activities.ports import ModelRequest, NotifyError, RunKey, ToolContext, ToolError
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.knowledge import Provenance
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import LOOP_VERSION
from orga.workflows.types.questions import Notification
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.replay.plain import a_stage, look
from tests.support.hold import wait_for_event
from tests.support.model.counting import counting
from tests.support.runs.decisions import a_decision
from tests.support.runs.deferred import completion, waiting_calls
from tests.support.runs.delegates import Cast, agent, delegates
from tests.support.runs.loop import WORKER_FACTS, Ran
from tests.support.runs.questions import send_update, wait_for_note, wait_for_question
from tests.support.values.shelf import Shelf, a_fact


def failing(name: str, times: int = 1, **options: Any) -> FakeTool:
    """Return a tool that fails this many times before it works."""

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(tool.contexts) <= times:
            raise ToolError("the disk is full", retryable=True)
        return "works again"

    tool = FakeTool(name, body, effect="idempotent", options=ToolOptions(max_attempts=1, **options))
    return tool


def recovering(name: str, times: int = 1, **recovery: Any) -> FakeTool:
    return failing(name, times, recovery=Recovery(**recovery))


async def recovered(client: Client) -> Ran:
    """Use a fallback, a cached result, and a dead letter that is requeued."""

    def works_once(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(ask.contexts) > 1:
            raise ToolError("gone")
        return "sunny"

    async def asks_again(arguments: dict[str, Any], context: ToolContext) -> str:
        await send_update(handle, "requeue", "4.0")
        return "asked for"

    save = recovering("save", strategy="fallback", alternatives=("tape",))
    ask = FakeTool("ask", works_once, options=ToolOptions(recovery=Recovery(strategy="cached_result")))
    pay = recovering("pay", strategy="dead_letter")
    again, tape = FakeTool("again", asks_again), FakeTool("tape")
    steps = [*(calls(name) for name in ("save", "ask", "ask", "pay", "again")), answers("done")]
    async with a_stage(client, steps, save, ask, pay, again, tape) as loop:
        handle = await loop.start()
        return await loop.ended(handle)


async def escalated(client: Client) -> Ran:
    async with a_stage(client, [calls("save"), answers("done")], recovering("save", strategy="escalate")) as loop:
        handle = await loop.start()
        wait = await wait_for_question(handle)
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "retry"})
        return await loop.ended(handle)


async def deferred(client: Client) -> Ran:
    """Complete calls of a deferred tool by an update with a result that does not fit, one that fits, and an error."""
    tool = DeferredTool("check", start=FakeTool("order"), output_schema={"type": "integer"})
    async with a_stage(client, [calls("check", "check"), answers("done")], tool) as loop:
        handle = await loop.start()
        first, second = await waiting_calls(handle, 2)
        with pytest.raises(WorkflowUpdateFailedError):
            await send_update(handle, "complete_tool_call", completion(first, "seven"))
        await send_update(handle, "complete_tool_call", completion(first, 7))
        await handle.signal("complete_tool_call", completion(second, error="no such person"))
        return await loop.ended(handle)


async def budget_extended(client: Client) -> Ran:
    async with a_stage(client, [calls("look"), calls("look"), answers("done")], look()) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_for_question(handle)
        await send_update(handle, "extend_budget", {"max_iterations": 9})
        return await loop.ended(handle)


async def step_limit(client: Client) -> Ran:
    async with a_stage(client, [*[calls("read")] * 3, answers("done")], failing("read", 9)) as loop:
        return await loop.run()


async def step_limit_counted(client: Client) -> Ran:
    """A model that keeps proposing a stopped step reads the reason three times, then its run ends."""
    return await _stopped_again_and_again(client)


async def step_limit_before(client: Client) -> Ran:
    """Continue like a run started before `STOPPED_STEPS_COUNTED`, which never ends a run for stopped steps."""
    return await _stopped_again_and_again(client, patch_activation_callback=in_none)


async def _stopped_again_and_again(client: Client, **options: Any) -> Ran:
    async with a_stage(client, [*[calls("read")] * 5, answers("done")], failing("read", 9), **options) as loop:
        return await loop.run()


async def circuit(client: Client) -> Ran:
    return await _with_a_circuit(client, WORKER_FACTS)


async def circuit_shown(client: Client) -> Ran:
    """If the server knows our search attributes, one of them names the tools with open circuits."""
    return await _with_a_circuit(client, await _known(client))


async def circuit_shown_before(client: Client) -> Ran:
    """Continue like a run started before `CLOSED_CIRCUIT_SHOWN`: a closed circuit stays listed."""
    facts = await _known(client)
    return await _with_a_circuit(client, facts, patch_activation_callback=in_none)


async def first_calls_shown(client: Client) -> Ran:
    """The progress of the run is written to its search attributes once, with its first calls."""
    facts = (await _known(client)).model_copy(update={"loop_version": LOOP_VERSION})
    steps = [calls("look"), calls("look"), answers("done")]
    async with a_stage(client, steps, look(), setup=facts) as loop:
        return await loop.run()


def in_none(change: PatchActivationInput) -> bool:
    """Take part in no change of the loop's rules, like a run from before them."""
    return False


async def _known(client: Client) -> Setup:
    await register_missing(client)
    return WORKER_FACTS.model_copy(update={"search_attributes": True})


async def _with_a_circuit(client: Client, facts: Setup, **options: Any) -> Ran:
    async def later(request: ModelRequest) -> Reply:
        await asyncio.sleep(0.6)  # the circuit's time is that of the server
        return calls("read", arguments={"n": 3})

    read = failing("read", 1, breaker=BreakerOptions(failure_threshold=1, recovery_s=0.5))
    steps = [*(calls("read", arguments={"n": n}) for n in (1, 2)), later, answers("done")]
    async with a_stage(client, steps, read, setup=facts, **options) as loop:
        return await loop.run()


async def hydrated(client: Client) -> Ran:
    parameters = {"type": "object", "properties": {"ticket": {"type": "string"}}}
    find = FakeTool("find", lambda arguments, context: f"{arguments['ticket']} is open", parameters=parameters)
    tickets = {"custom_patterns": [{"ref_type": "ticket", "pattern": r"T-\d"}], "resolution_tools": {"ticket": "find"}}
    async with a_stage(client, [answers("done")], find) as loop:
        return await loop.run("close T-1 and T-2, see ./notes.md", pre_hydration=tickets)


async def summarised(client: Client) -> Ran:
    return await _outgrown(client, "anchored_summary")


async def masked(client: Client) -> Ran:
    return await _outgrown(client, "observation_masking")


async def _outgrown(client: Client, strategy: str) -> Ran:
    pages = FakeTool("page", lambda arguments, context: f"page {arguments['n']} " + "x" * 700)

    def reading(request: ModelRequest, number: int) -> Reply:
        return calls("page", arguments={"n": number}) if number <= 8 else answers("done")

    provider = counting(reading, lambda request, number: Reply.of(f"summary {number}"))
    async with a_stage(client, provider, pages) as loop:
        return await loop.run(context_strategy=strategy, context_token_budget=1_400)


async def answer_repaired(client: Client) -> Ran:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with a_stage(client, [answers("three"), answers('{"n": 3}')]) as loop:
        return await loop.run({"task": "count", "output_schema": schema})


async def decided(client: Client) -> Ran:
    required = {"tools": ["look"], "decisions": {"small": a_decision(required=True)}}
    agents = {"default": AgentConfig.model_validate(required)}
    made = calls("decide", arguments={"decision": "small", "fields": {"size": "l", "count": 3}, "rationale": "large"})
    steps = [answers("early"), calls("look"), made, made, answers("done")]
    async with a_stage(client, steps, look(), agents=agents) as loop:
        return await loop.run({"task": "decide", "trusted_context": {"paid": True}})


async def delegated(client: Client) -> Ran:
    agents = {"lead": agent("lead", "helper", tools=["look"]), "helper": agent("helper", tools=["look"])}
    cast = Cast({"lead": [delegates("helper"), answers("done")], "helper": [calls("look"), answers("helped")]})
    async with a_stage(client, cast, look(), agents=agents) as loop:
        return await loop.run({"task": "lead", "agent": "lead"})


async def notified(client: Client) -> Ran:
    """The message about the first question fails, and that about the end is delivered."""
    asked = asyncio.Event()

    class Once:
        async def deliver(self, notification: Notification, run: RunKey) -> None:
            if notification.event == "waiting":
                asked.set()
                raise NotifyError("it answered 404", kind="ReceiverRefused", retryable=False)

    steps = [calls("look"), calls("look"), answers("done")]
    setup = WORKER_FACTS.model_copy(update={"notify": ("budget", "ended")})
    async with a_stage(client, steps, look(), setup=setup, notifier=Once()) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_for_event(asked)
        await wait_for_note(handle, "NotificationFailed")
        await send_update(handle, "extend_budget", {"max_iterations": 9})
        return await loop.ended(handle)


async def knowing(client: Client) -> Ran:
    """Inject, keep, replace and drop knowledge blocks. The model stores a fact, and the end stores learnings."""
    talk = ["invoice format", "invoice format once more", "warehouse harbour", "nothing else"]
    look = FakeTool("look", lambda arguments, context: str(talk[int(arguments["n"])]))
    fact = {"subject": "invoices", "predicate": "are", "object": "EDIFACT"}
    shelf = Shelf(
        a_fact(
            "invoice format EDIFACT",
            scope="global",
            provenance=Provenance(taint=("fetch_url",), source="https://invoices.example"),
        ),
        a_fact("warehouse harbour north", scope="global"),
    )
    steps = [
        *(calls("look", arguments={"n": n}) for n in range(4)),
        calls("store_knowledge", arguments=fact),
        calls("recall_knowledge", arguments={"query": "warehouse harbour"}),
        answers("done"),
    ]
    async with a_stage(client, steps, look, knowledge=shelf.as_store) as loop:
        task = {"task": "look", "tenant": "acme", "trusted_context": {"user": "ada"}}
        return await loop.run(task, knowledge={"max_context_items": 1})
