"""A verdict does not survive a wait for a person: an allowed call is judged again before it starts."""

from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowHandle

from orga.activities.adapters.policy.engines import gate_execution
from orga.activities.ports import ToolContext, ToolError
from orga.client.testing.script import USAGE
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_until
from tests.support.runs.critics import a_critic, a_person, agents_with_critics, verdict
from tests.support.runs.delegates import a_cast, agent, delegates, start_lead
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question, wait_until_still
from tests.support.tools.lookups import fetching
from tests.support.values.policies import a_verdict

FORBIDDEN = "[Policy denied] forbidden since noon"


@dataclass
class Reloaded:
    """A policy engine that is reloaded. Before that it allows `payer` and `pay`, possibly with an approval."""

    is_embedded = True

    forbids: bool = False
    asks: bool = False

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Decide by the current rules."""
        version = "v2" if self.forbids else "v1"
        if proposal.call is None or not (
            proposal.call.name == "pay" or proposal.call.arguments.get("agent") == "payer"
        ):
            return a_verdict(True, version=version)
        if self.forbids:
            return a_verdict(False, "forbidden since noon", version=version)
        return a_verdict(True, approval=ApprovalTerms() if self.asks else None, version=version)


async def next_held(handle: WorkflowHandle[Any, Any], before: str = "") -> str:
    """Return the id of the waiting approval, once it differs from `before`."""
    found: list[str] = []

    async def asks() -> bool:
        found[:] = [question["approval_id"] for question in (await handle.query("status"))["pending_approvals"]]
        return len(found) == 1 and found != [before]

    await wait_until(asks)
    return found[0]


async def result_after_review(client: Client, pay: FakeTool, *, forbids: bool) -> list[str]:
    """Approve a call and let a person review it while policy may change. Return what the model reads."""
    engine, agents = Reloaded(asks=True), agents_with_critics(a_person(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [calls("pay"), answers()], pay, engine=engine, agents=agents) as loop:
        handle = await loop.start()
        approval = await next_held(handle)
        await send_update(handle, "approve", {"approval_id": approval, "approver": "ada"})
        review = await next_held(handle, before=approval)
        engine.forbids = forbids
        await send_update(handle, "approve", {"approval_id": review, "approver": "bob"})
        await loop.ended(handle)
    return tool_results_in(loop)


async def test_a_call_forbidden_during_its_review_does_not_run(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    assert (await result_after_review(client, pay, forbids=True), pay.contexts) == ([FORBIDDEN], [])


async def test_an_approval_counts_if_nothing_has_changed(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    assert (await result_after_review(client, pay, forbids=False), len(pay.contexts)) == (["ok"], 1)


async def test_a_call_forbidden_during_a_budget_question_does_not_run(client: Client) -> None:
    pay, engine = FakeTool("pay", effect="irreversible"), Reloaded()
    async with a_loop(client, [calls("look"), calls("pay"), answers()], FakeTool("look"), pay, engine=engine) as loop:
        handle = await loop.start(max_tool_calls=1, on_exhausted="ask")
        await wait_for_question(handle)
        engine.forbids = True
        await send_update(handle, "extend_budget", {"max_tool_calls": 9})
        await loop.ended(handle)

    assert (pay.contexts, tool_results_in(loop, 2)) == ([], ["ok", FORBIDDEN])


async def test_a_call_forbidden_during_a_pause_does_not_run(client: Client) -> None:
    pay, engine, reviewing = FakeTool("pay", effect="irreversible"), Reloaded(), Hold()
    script = [calls("pay"), reviewing.step(verdict()), answers()]
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, script, pay, engine=engine, agents=agents) as loop:
        handle = await loop.start()
        await reviewing.reached()
        await handle.signal("pause")
        reviewing.go.set()
        await wait_until(lambda: _is_paused(handle))
        engine.forbids = True
        await handle.signal("resume")
        await loop.ended(handle)

    assert (pay.contexts, tool_results_in(loop, 2)) == ([], [FORBIDDEN])


async def _is_paused(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await handle.query("status"))["phase"] == "paused"


async def test_a_failed_call_forbidden_before_a_person_retries_it_does_not_run(client: Client) -> None:
    def down(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("down", retryable=False)

    engine, options = Reloaded(), ToolOptions(recovery=Recovery(strategy="escalate"))
    pay = FakeTool("pay", down, "irreversible", options=options)
    async with a_loop(client, [calls("pay"), answers()], pay, engine=engine) as loop:
        handle = await loop.start()
        wait = await wait_for_question(handle)
        engine.forbids = True
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "retry"})
        await loop.ended(handle)

    assert len(pay.contexts) == 1
    assert tool_results_in(loop)[0].endswith("[Policy denied] An operator wanted it called again: forbidden since noon")


async def test_a_call_forbidden_while_it_waits_for_a_slot_does_not_run(client: Client) -> None:
    hold, engine = Hold(), Reloaded()
    look, pay = FakeTool("look", lambda arguments, context: hold.then("ok")), FakeTool("pay", effect="irreversible")
    proposed = tuple(ToolCall(call_id=name, name=name) for name in ("look", "pay"))
    script = [Reply.of(calls=proposed, finish="tool_calls", usage=USAGE), answers()]
    async with a_loop(client, script, look, pay, engine=engine) as loop:
        handle = await loop.start(max_concurrent_tools=1)
        await hold.reached()
        await handle.signal("pause")
        await wait_until(lambda: _is_to_pause(handle))
        engine.forbids = True
        await handle.signal("resume")
        hold.go.set()
        await loop.ended(handle)

    assert (pay.contexts, tool_results_in(loop)) == ([], ["ok", FORBIDDEN])


async def _is_to_pause(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await handle.query("status"))["paused"]


async def test_a_delegation_forbidden_while_it_waits_for_a_slot_does_not_start(client: Client) -> None:
    engine = Reloaded()
    agents = {
        "lead": agent("lead", "helper", "payer"),
        "helper": agent("helper", tools=["ask_user"]),
        "payer": agent("payer"),
    }
    asks = calls("ask_user", arguments={"question": "now?"})
    scripts = {
        "lead": [delegates("helper", "payer"), answers()],
        "helper": [asks, answers("done")],
        "payer": [answers("paid")],
    }
    async with a_cast(client, agents, scripts, engine=engine) as (loop, cast):
        handle = await start_lead(loop, max_concurrent_tools=1)
        helper = client.get_workflow_handle(f"{handle.id}.1.0")
        await wait_until(lambda: _is_held_below(handle))
        wait = await wait_for_question(helper)
        engine.forbids = True
        await send_update(helper, "answer", {"question_id": wait["wait_id"], "text": "yes"})
        ran = await loop.ended(handle)

    assert (cast.messages_to("lead")[-1], cast.seen("payer")) == (FORBIDDEN, [])
    assert ran.result.tool_calls.denied == 1


async def _is_held_below(handle: WorkflowHandle[Any, Any]) -> bool:
    return any(child["held"] for child in (await handle.query("status"))["children"])


class Slow:
    """A policy server that is slow with the first verdict, and then forbids lookups."""

    is_embedded = False

    def __init__(self) -> None:
        self.hold, self.judged = Hold(), 0

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Allow the first proposal. Afterwards allow only the answer."""
        self.judged += 1
        if self.judged == 1:
            await self.hold.then(None)
        return a_verdict(proposal.call is None or self.judged == 1, "forbidden since noon")


async def test_a_lookup_forbidden_during_a_pause_does_not_run(client: Client) -> None:
    fetch, engine = fetching(), Slow()
    setup = WORKER_FACTS.model_copy(update={"gate_execution": gate_execution(engine)})
    async with a_loop(client, [answers()], fetch, engine=engine, setup=setup) as loop:
        handle = await loop.start("https://a.io")
        await engine.hold.reached()
        await handle.signal("pause")
        engine.hold.go.set()
        await wait_until_still(handle)
        await handle.signal("resume")
        ran = await loop.ended(handle)

    (looked_up,) = [entry.data for entry in ran.journal if entry.event == "PreHydrationComplete"]
    assert (fetch.contexts, looked_up["references"][0]["why"]) == ([], FORBIDDEN)
