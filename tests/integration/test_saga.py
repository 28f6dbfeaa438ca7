"""Sagas on a real server: steps in order, each through the gate; what was done is taken back when one fails."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from activities.ports import Judgement, PolicyEngine, Proposal
from tests.support.hold import Hold, until
from tests.support.loop import Deny, FakeTool, Loop, Ran, a_loop
from tests.support.questions import told, updated, waiting
from tests.support.sagas import Ledger, Step, book, fails, look, pay, saga, sagas
from tests.support.scripted import ScriptedProvider, answers, calls
from workflows.types.agents import AgentConfig
from workflows.types.gate import ApprovalTerms
from workflows.types.recovery import Recovery
from workflows.types.tools import ToolOptions


@asynccontextmanager
async def an_agency(client: Client, steps: Sequence[Any], *tools: FakeTool, **options: Any) -> AsyncGenerator[Loop]:
    """Run a worker whose agent may propose sagas of these tools."""
    agent = AgentConfig(tools=(*(tool.name for tool in tools), "saga"))
    async with a_loop(client, steps, *tools, agents={"default": agent}, **options) as loop:
        yield loop


async def played(
    client: Client, ledger: Ledger, *steps: Step, engine: PolicyEngine | None = None, **config: Any
) -> tuple[Ran, str]:
    """Return a run that proposes one saga, and what the model was told of it."""
    async with an_agency(client, [saga(*steps), answers()], *ledger.tools, engine=engine) as loop:
        ran = await loop.run(**config)
    return ran, told(loop)[0]


def compensations(ran: Ran) -> list[tuple[str, str]]:
    found = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    assert {data["strategy"] for data in found} <= {"compensate", "dead_letter"}
    return [(data["tool"], data["outcome"]) for data in found if data["strategy"] == "compensate"]


def ending(ran: Ran) -> dict[str, Any]:
    (found,) = [entry.data for entry in ran.journal if entry.event == "SagaEnded"]
    return found


def observed(ran: Ran) -> list[dict[str, Any]]:
    return next(entry.data["outcomes"] for entry in ran.journal if entry.event == "ObservationsCollected")


async def test_all_steps_in_order_are_one_result(client: Client) -> None:
    ledger = Ledger()
    ran, text = await played(client, ledger, look("fares"), book("flight"), book("hotel"), pay("both"))

    assert ledger.done == ["look fares", "book flight", "book hotel", "pay both"]
    assert text.splitlines()[:2] == ["[Saga done] all 4 steps", "step 1, read_only, look: ok"]
    assert [word in text for word in ("look fares: done", "book flight: done", "pay both: done")] == [True] * 3
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 1, "denied": 0, "failed": 0, "in_sagas": 4}
    assert compensations(ran) == []
    assert [call["outcome"] for call in ending(ran)["calls"]] == ["ok"] * 4
    assert observed(ran) == [{"tool": "saga", "call_id": "g0", "outcome": "ok"}]


async def test_a_failure_takes_back_what_was_done_the_last_first(client: Client) -> None:
    ledger = Ledger({"book car": fails("no cars")})
    ran, text = await played(client, ledger, book("flight"), look(), book("hotel"), book("car"), pay())

    assert ledger.done == ["book flight", "look prices", "book hotel", "cancel hotel", "cancel flight"]
    assert text.startswith("[Error] saga stopped at step 4 of 5 (book failed); what was done is taken back")
    assert "no cars" in text
    assert "step 5, final, pay: not begun" in text
    assert "compensation of step 3, cancel: ok" in text
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]
    assert (ran.result.tool_calls.failed, ran.result.tool_calls.in_sagas) == (1, 6)
    (outcome,) = observed(ran)
    assert outcome["outcome"] == "failed"
    assert "no cars" in outcome["error"]
    assert ran.events[-1] == "Terminated"


async def test_a_compensation_that_fails_does_not_stop_the_others(client: Client) -> None:
    ledger = Ledger({"pay all": fails("no money"), "cancel hotel": fails("too late")})
    ran, text = await played(client, ledger, book("flight"), book("hotel"), pay())

    assert ledger.done == ["book flight", "book hotel", "cancel flight"]
    assert "NOT taken back: step 2; see to it" in text
    assert "too late" in text
    assert compensations(ran) == [("cancel", "failed"), ("cancel", "ok")]


async def test_behind_a_final_step_nothing_is_taken_back(client: Client) -> None:
    ledger = Ledger({"pay tip": fails("no change")})
    ran, text = await played(client, ledger, book("hotel"), pay(), pay("tip"))

    assert ledger.done == ["book hotel", "pay all"]
    assert "partly done: a final step had succeeded before, so nothing is taken back" in text
    assert (compensations(ran), ending(ran)["outcome"]) == ([], "failed")


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        pytest.param((pay(), look()), "[Not run] step 2 (look): after a final step", id="out of order"),
        pytest.param((look(), {**pay(), "tool": "saga"}), "saga cannot be part of a saga", id="a saga within"),
        pytest.param((book("x", compensation={"tool": "no", "arguments": {}}),), "no tool 'no'", id="an unknown tool"),
    ],
)
async def test_a_saga_out_of_order_is_refused_before_anything_runs(
    client: Client, steps: tuple[Step, ...], says: str
) -> None:
    ledger = Ledger()
    ran, text = await played(client, ledger, *steps)
    assert (ledger.done, says in text) == ([], True)
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 0, "denied": 1, "failed": 0}
    assert observed(ran)[0]["outcome"] == "not_run"


@pytest.mark.parametrize(
    ("denied", "says"),
    [
        pytest.param("pay", "[Not run] step 2 (pay): [Policy denied] pay is forbidden", id="a step"),
        pytest.param(
            "cancel",
            "[Not run] the compensation of step 1 (cancel): [Policy denied] cancel is forbidden",
            id="a compensation",
        ),
    ],
)
async def test_what_the_gate_would_stop_on_its_way_is_not_begun(client: Client, denied: str, says: str) -> None:
    ledger = Ledger()
    ran, text = await played(client, ledger, book("hotel"), pay(), engine=Deny(denied))
    assert (ledger.done, text) == ([], says)
    assert ran.result.tool_calls.denied == 1


async def test_arguments_that_do_not_fit_are_found_before_anything_runs(client: Client) -> None:
    ledger = Ledger()
    schema = {"type": "object", "properties": {"what": {"type": "string", "maxLength": 5}}}
    tools = [ledger.tool("book"), ledger.tool("cancel", parameters=schema)]
    async with an_agency(client, [saga(book("long hotel")), answers()], *tools) as loop:
        await loop.run()
    assert ledger.done == []
    assert told(loop)[0].startswith("[Not run] the compensation of step 1 (cancel): [Invalid call] the arguments")


@dataclass
class Judge:
    """A policy engine that changes its mind: it denies, or wants approved, from the second time it is asked."""

    denies: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def judge(self, proposal: Proposal) -> Judgement:
        if proposal.call is None:
            return Judgement(allowed=True)
        what = f"{proposal.call.name} {proposal.call.arguments.get('what')}"
        is_foreseen = (proposal.purpose, what) not in self.seen
        self.seen.append((proposal.purpose, what))
        terms = ApprovalTerms() if what in self.asks and not is_foreseen else None
        return Judgement(allowed=is_foreseen or what not in self.denies, reason="not now", approval=terms)


async def test_each_step_and_each_compensation_is_judged_on_its_own(client: Client) -> None:
    ledger, engine = Ledger({"book car": fails()}), Judge()
    await played(client, ledger, look(), book("hotel"), book("car"), engine=engine)
    steps = [("saga", "look prices"), ("saga", "book hotel"), ("saga", "book car")]
    back = [("compensation", "cancel hotel"), ("compensation", "cancel car")]
    assert [entry for entry in engine.seen if entry[0] != "reply"] == [*steps, *back, *steps, back[0]]


async def test_a_step_that_is_denied_when_its_turn_comes_takes_the_others_back(client: Client) -> None:
    ledger = Ledger()
    ran, text = await played(client, ledger, book("hotel"), book("car"), engine=Judge(denies=("book car",)))
    assert ledger.done == ["book hotel", "cancel hotel"]
    assert text.startswith("[Error] saga stopped at step 2 of 2 (book denied); what was done is taken back")
    assert "[Policy denied] not now" in text
    assert compensations(ran) == [("cancel", "ok")]


async def test_a_compensation_that_is_denied_when_its_turn_comes_is_told(client: Client) -> None:
    ledger, engine = Ledger({"pay all": fails()}), Judge(denies=("cancel car",))
    ran, text = await played(client, ledger, book("hotel"), book("car"), pay(), engine=engine)
    assert ledger.done == ["book hotel", "book car", "cancel hotel"]
    assert "NOT taken back: step 2; see to it" in text
    assert compensations(ran) == [("cancel", "denied"), ("cancel", "ok")]


@pytest.mark.parametrize(
    ("update", "done"),
    [
        pytest.param("approve", ["book hotel", "pay all"], id="approved"),
        pytest.param("deny", ["book hotel", "cancel hotel"], id="denied"),
    ],
)
async def test_a_person_decides_about_one_step(client: Client, update: str, done: list[str]) -> None:
    ledger, engine = Ledger(), Judge(asks=("pay all",))
    steps = [saga(book("hotel"), pay()), answers()]
    async with an_agency(client, steps, *ledger.tools, engine=engine) as loop:
        handle = await loop.start()
        await waiting(handle)
        (hold,) = (await handle.query("status"))["pending_approvals"]
        assert (ledger.done, hold["call"]["name"]) == (["book hotel"], "pay")
        await updated(handle, update, {"approval_id": hold["approval_id"], "approver": "ada"})
        await loop.ended(handle)
    assert ledger.done == done


async def test_sagas_side_by_side_ask_for_their_approvals_at_the_same_time(client: Client) -> None:
    ledger, engine = Ledger(), Judge(asks=("pay a", "pay b"))
    async with an_agency(client, [sagas((pay("a"),), (pay("b"),)), answers()], *ledger.tools, engine=engine) as loop:
        handle = await loop.start()

        async def both_ask() -> bool:
            return len((await handle.query("status"))["pending_approvals"]) == 2

        await until(both_ask)
        for number, hold in enumerate((await handle.query("status"))["pending_approvals"]):
            word = "approve" if number else "deny"
            await updated(handle, word, {"approval_id": hold["approval_id"], "approver": "ada"})
        ran = await loop.ended(handle)
    assert len(ledger.done) == 1
    assert ran.result.termination.reason == "completed"


async def test_an_abort_in_the_middle_takes_back_what_was_done(client: Client) -> None:
    """The call in flight may have had its effect, so its compensation is carried out, too."""
    hold = Hold()
    ledger = Ledger({"book car": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), book("car"), pay())], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "changed plans")
        ran = await loop.ended(handle)
        shown = await handle.query("conversation")

    assert ran.result.termination.reason == "aborted"
    assert ledger.done == ["book hotel", "cancel car", "cancel hotel"]
    assert shown[-1]["text"].startswith(
        "[Error] saga stopped at step 2 of 3 (book cancelled); what was done is taken back"
    )
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]


async def test_the_end_of_the_time_takes_back_what_was_done(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), look(), pay())], *ledger.tools) as loop:
        ran = await loop.run(timeout_s=3)
    assert (ran.result.termination.reason, ledger.done) == ("timeout", ["book hotel", "cancel hotel"])


async def test_compensations_under_way_are_not_cut_off_by_an_abort(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"pay all": fails(), "cancel car": lambda: hold.then("cancelled at last")})
    async with an_agency(client, [saga(book("hotel"), book("car"), pay())], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        await handle.query("status")  # it has seen the abort by then
        hold.go.set()
        ran = await loop.ended(handle)
    assert ledger.done == ["book hotel", "book car", "cancel hotel"]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in [e.event_type for e in ran.history.events]
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]


async def test_an_abort_behind_a_final_step_leaves_what_is_done(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"pay tip": lambda: hold.then("never")})
    async with an_agency(client, [saga(book("hotel"), pay(), pay("tip"))], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
    assert (ledger.done, compensations(ran)) == (["book hotel", "pay all"], [])


async def test_a_pause_holds_before_the_next_step(client: Client) -> None:
    hold = Hold()
    ledger = Ledger({"look prices": lambda: hold.then("seen")})
    async with an_agency(client, [saga(look(), pay()), answers()], *ledger.tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause")

        async def is_paused() -> bool:
            return (await handle.query("status"))["paused"]

        await until(is_paused)
        hold.go.set()

        async def is_seen() -> bool:
            return not (await handle.describe()).raw_description.pending_activities

        await until(is_seen)
        assert ledger.done == []
        await handle.signal("resume")
        await loop.ended(handle)
    assert ledger.done == ["pay all"]


async def test_a_failed_step_is_no_dead_letter_and_a_failed_compensation_is_one(client: Client) -> None:
    """A step that were sent again would stand alone; a compensation has to be sent again."""
    ledger = Ledger({"pay all": fails(), "cancel hotel": fails("down", retryable=True)})
    once = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))
    tools = [ledger.tool("book"), ledger.tool("cancel", options=once), ledger.tool("pay", options=once)]
    async with an_agency(client, [saga(book("hotel"), pay()), answers()], *tools) as loop:
        ran = await loop.run()
        status = await ran.handle.query("status")
    assert [letter["letter_id"] for letter in status["dead_letters"]] == ["1.0.c0"]
    assert "[Dead letter] The call is kept as 1.0.c0" in told(loop)[0]
    assert compensations(ran) == [("cancel", "failed")]


async def test_every_call_has_a_key_of_its_own_and_a_retry_the_same(client: Client) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        return "done" if len(tries) > 1 else fails("down", retryable=True)()

    ledger = Ledger({"book car": flaky, "pay all": fails()})
    await played(client, ledger, book("hotel"), book("car"), pay(), recovery={"base_delay_ms": 1})
    assert [len(keys) for keys in ledger.keys.values()] == [1, 2, 1, 1, 1]
    assert len(set(ledger.keys["book car"])) == 1
    assert len({key for keys in ledger.keys.values() for key in keys}) == 5


async def test_steps_count_against_the_tool_calls_of_the_run(client: Client) -> None:
    ledger = Ledger()
    ran, text = await played(client, ledger, book("hotel"), pay(), max_tool_calls=2)
    assert (ledger.done, ran.result.tool_calls.run) == ([], 0)
    assert text.startswith("[Not run] the run's 2 tool calls are used up")


async def test_compensations_are_carried_out_beyond_the_tool_calls_of_the_run(client: Client) -> None:
    ledger = Ledger({"pay all": fails()})
    ran, _ = await played(client, ledger, book("hotel"), pay(), max_tool_calls=3)
    assert (ledger.done, ran.result.tool_calls.spent) == (["book hotel", "cancel hotel"], 4)


async def test_what_a_tool_said_within_a_saga_taints_the_run(client: Client) -> None:
    seen: list[tuple[str, ...]] = []

    class Watching(Judge):
        async def judge(self, proposal: Proposal) -> Judgement:
            seen.append(tuple(proposal.taint))
            return Judgement(allowed=True)

    await played(client, Ledger(), look(), pay(), engine=Watching())
    assert seen[0] == ()
    assert set(seen[-1]) == {"look", "pay"}


async def test_random_sagas_side_by_side_in_one_slot(client: Client) -> None:
    """Each does what the rules say, whatever fails; none waits for a slot that it holds itself."""
    chance = random.Random(7)
    plans = [_random_plan(chance, name) for name in "ABCDEFGH"]
    failing = {
        f"{step['tool']} {step['arguments']['what']}" for plan in plans for step in plan if chance.random() < 0.2
    }
    ledger = Ledger(dict.fromkeys(failing, fails()))
    async with an_agency(client, [sagas(*plans), calls("look"), answers()], *ledger.tools) as loop:
        ran = await loop.run(max_concurrent_tools=1)
    for name, plan in zip("ABCDEFGH", plans, strict=True):
        assert [entry for entry in ledger.done if entry.endswith(name)] == _expected(plan, failing)
    assert len({key for keys in ledger.keys.values() for key in keys}) == sum(map(len, ledger.keys.values()))
    assert len(compensations(ran)) == sum(entry.startswith("cancel") for entry in ledger.done)


def _random_plan(chance: random.Random, name: str) -> tuple[Step, ...]:
    early = [chance.choice([look, book])(f"{n}{name}") for n in range(chance.randint(0, 3))]
    return (*early, *(pay(f"{n}{name}") for n in range(4, 4 + chance.randint(1, 2))))


def _expected(plan: tuple[Step, ...], failing: set[str]) -> list[str]:
    """Return the effects of one saga, by the rules as they are written down."""
    done: list[tuple[str, Step]] = []
    for step in plan:
        entry = f"{step['tool']} {step['arguments']['what']}"
        if entry in failing:
            is_final = any(other["kind"] == "final" for _, other in done)
            back = [] if is_final else [o for _, o in reversed(done) if o["kind"] == "compensatable"]
            return [e for e, _ in done] + [f"cancel {other['arguments']['what']}" for other in back]
        done.append((entry, step))
    return [entry for entry, _ in done]


async def test_an_agent_that_does_not_list_it_has_no_saga(client: Client) -> None:
    ledger = Ledger()
    async with a_loop(client, [saga(pay()), answers()], *ledger.tools) as loop:
        await loop.run()
        assert isinstance(loop.provider, ScriptedProvider)
        assert "saga" not in [tool.name for tool in loop.provider.seen[0].tools]
    assert (ledger.done, told(loop)) == (
        [],
        ["[Invalid call] there is no tool 'saga'; the tools are: look, book, cancel, pay"],
    )
