"""Sagas on a real server: ordered steps give one result, and finished steps are compensated if one fails."""

import random
from typing import Any

from temporalio.client import Client

from orga.testing import ScriptedModel, answers, calls
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import tool_results_in
from tests.support.runs.sagas import (
    Ledger,
    Step,
    an_agency,
    book,
    compensations,
    fails,
    first_reply_outcomes,
    look,
    pay,
    run_saga,
    saga,
    sagas,
)


def ending(ran: Ran) -> dict[str, Any]:
    (found,) = [entry.data for entry in ran.journal if entry.event == "SagaEnded"]
    return found


async def test_all_steps_in_order_give_one_result(client: Client) -> None:
    ledger = Ledger()
    ran, text = await run_saga(client, ledger, look("fares"), book("flight"), book("hotel"), pay("both"))

    assert ledger.done == ["look fares", "book flight", "book hotel", "pay both"]
    assert text.splitlines()[:2] == ["[Saga done] all 4 steps", "step 1, read_only, look: ok"]
    assert [word in text for word in ("look fares: done", "book flight: done", "pay both: done")] == [True] * 3
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 1, "denied": 0, "failed": 0, "in_sagas": 4}
    assert compensations(ran) == []
    assert [call["outcome"] for call in ending(ran)["calls"]] == ["ok"] * 4
    assert first_reply_outcomes(ran) == [{"tool": "saga", "call_id": "g0", "outcome": "ok"}]


async def test_a_failure_compensates_the_finished_steps_in_reverse_order(client: Client) -> None:
    ledger = Ledger({"book car": fails("no cars")})
    ran, text = await run_saga(client, ledger, book("flight"), look(), book("hotel"), book("car"), pay())

    assert ledger.done == ["book flight", "look prices", "book hotel", "cancel hotel", "cancel flight"]
    assert text.startswith("[Error] saga stopped at step 4 of 5 (book failed); what was done is taken back")
    assert "no cars" in text
    assert "step 5, final, pay: not begun" in text
    assert "compensation of step 3, cancel: ok" in text
    assert compensations(ran) == [("cancel", "ok"), ("cancel", "ok")]
    assert (ran.result.tool_calls.failed, ran.result.tool_calls.in_sagas) == (1, 6)
    (outcome,) = first_reply_outcomes(ran)
    assert outcome["outcome"] == "failed"
    assert "no cars" in outcome["error"]
    assert ran.events[-1] == "Terminated"


async def test_a_failed_compensation_does_not_stop_the_others(client: Client) -> None:
    ledger = Ledger({"pay all": fails("no money"), "cancel hotel": fails("too late")})
    ran, text = await run_saga(client, ledger, book("flight"), book("hotel"), pay())

    assert ledger.done == ["book flight", "book hotel", "cancel flight"]
    assert "NOT taken back: step 2; see to it" in text
    assert "too late" in text
    assert compensations(ran) == [("cancel", "failed"), ("cancel", "ok")]


async def test_nothing_is_compensated_after_a_final_step(client: Client) -> None:
    ledger = Ledger({"pay tip": fails("no change")})
    ran, text = await run_saga(client, ledger, book("hotel"), pay(), pay("tip"))

    assert ledger.done == ["book hotel", "pay all"]
    assert "partly done: a final step had succeeded before, so nothing is taken back" in text
    assert (compensations(ran), ending(ran)["outcome"]) == ([], "failed")


async def test_a_failed_compensation_is_a_dead_letter_and_a_failed_step_is_not(client: Client) -> None:
    """A requeued step would run outside its saga, but a compensation has to be repeated."""
    ledger = Ledger({"pay all": fails(), "cancel hotel": fails("down", retryable=True)})
    once = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))
    tools = [ledger.tool("book"), ledger.tool("cancel", options=once), ledger.tool("pay", options=once)]
    async with an_agency(client, [saga(book("hotel"), pay()), answers()], *tools) as loop:
        ran = await loop.run()
        status = await ran.handle.query("status")
    assert [letter["letter_id"] for letter in status["dead_letters"]] == ["1.0.c0"]
    assert "[Dead letter] The call is kept as 1.0.c0" in tool_results_in(loop)[0]
    assert compensations(ran) == [("cancel", "failed")]


async def test_every_call_has_its_own_key_and_a_retry_has_the_same(client: Client) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        return "done" if len(tries) > 1 else fails("down", retryable=True)()

    ledger = Ledger({"book car": flaky, "pay all": fails()})
    await run_saga(client, ledger, book("hotel"), book("car"), pay(), recovery={"base_delay_ms": 1})
    assert [len(keys) for keys in ledger.keys.values()] == [1, 2, 1, 1, 1]
    assert len(set(ledger.keys["book car"])) == 1
    assert len({key for keys in ledger.keys.values() for key in keys}) == 5


async def test_steps_count_against_the_tool_calls_of_the_run(client: Client) -> None:
    ledger = Ledger()
    ran, text = await run_saga(client, ledger, book("hotel"), pay(), max_tool_calls=2)
    assert (ledger.done, ran.result.tool_calls.run) == ([], 0)
    assert text.startswith("[Not run] the run's 2 tool calls are used up")


async def test_compensations_may_exceed_the_tool_calls_of_the_run(client: Client) -> None:
    ledger = Ledger({"pay all": fails()})
    ran, _ = await run_saga(client, ledger, book("hotel"), pay(), max_tool_calls=3)
    assert (ledger.done, ran.result.tool_calls.spent) == (["book hotel", "cancel hotel"], 4)


async def test_random_parallel_sagas_in_one_slot_follow_the_rules(client: Client) -> None:
    """Each saga follows the rules whatever fails, and none waits for a slot that it holds itself."""
    chance = random.Random(294)  # this seed draws sagas that succeed, are compensated, and fail after a final step
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
    assert 0 < len(compensations(ran)) == sum(entry.startswith("cancel") for entry in ledger.done)


def _random_plan(chance: random.Random, name: str) -> tuple[Step, ...]:
    early = [chance.choice([look, book])(f"{n}{name}") for n in range(chance.randint(0, 3))]
    return (*early, *(pay(f"{n}{name}") for n in range(4, 4 + chance.randint(1, 2))))


def _expected(plan: tuple[Step, ...], failing: set[str]) -> list[str]:
    """Return the effects of one saga by the documented rules."""
    done: list[tuple[str, Step]] = []
    for step in plan:
        entry = f"{step['tool']} {step['arguments']['what']}"
        if entry in failing:
            is_final = any(other["kind"] == "final" for _, other in done)
            back = [] if is_final else [o for _, o in reversed(done) if o["kind"] == "compensatable"]
            return [e for e, _ in done] + [f"cancel {other['arguments']['what']}" for other in back]
        done.append((entry, step))
    return [entry for entry, _ in done]


async def test_an_agent_that_does_not_list_the_saga_tool_has_none(client: Client) -> None:
    ledger = Ledger()
    async with a_loop(client, [saga(pay()), answers()], *ledger.tools) as loop:
        await loop.run()
        assert isinstance(loop.provider, ScriptedModel)
        assert "saga" not in [tool.name for tool in loop.provider.seen[0].tools]
    assert (ledger.done, tool_results_in(loop)) == (
        [],
        ["[Invalid call] there is no tool 'saga'; the tools are: look, book, cancel, pay"],
    )
