"""A saga is judged before it starts, and each step and each compensation again before it runs."""

from dataclasses import dataclass, field

import pytest
from temporalio.client import Client

from orga.testing import answers
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.runs.approvals import approval_argument, wait_for_held_calls
from tests.support.runs.loop import Deny
from tests.support.runs.questions import send_update, tool_results_in
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
from tests.support.values.policies import a_verdict


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        pytest.param((pay(), look()), "[Not run] step 2 (look): after a final step", id="out of order"),
        pytest.param((look(), {**pay(), "tool": "saga"}), "saga cannot be part of a saga", id="a saga within a saga"),
        pytest.param((book("x", compensation={"tool": "no", "arguments": {}}),), "no tool 'no'", id="an unknown tool"),
    ],
)
async def test_an_invalid_saga_is_refused_before_anything_runs(
    client: Client, steps: tuple[Step, ...], says: str
) -> None:
    ledger = Ledger()
    ran, text = await run_saga(client, ledger, *steps)
    assert (ledger.done, says in text) == ([], True)
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 0, "denied": 0, "failed": 0, "not_run": 1}
    assert first_reply_outcomes(ran)[0]["outcome"] == "not_run"


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
async def test_a_saga_with_a_denied_part_does_not_start(client: Client, denied: str, says: str) -> None:
    ledger = Ledger()
    ran, text = await run_saga(client, ledger, book("hotel"), pay(), engine=Deny(denied))
    assert (ledger.done, text) == ([], says)
    assert ran.result.tool_calls.not_run == 1


async def test_invalid_arguments_are_found_before_anything_runs(client: Client) -> None:
    ledger = Ledger()
    schema = {"type": "object", "properties": {"what": {"type": "string", "maxLength": 5}}}
    tools = [ledger.tool("book"), ledger.tool("cancel", parameters=schema)]
    async with an_agency(client, [saga(book("long hotel")), answers()], *tools) as loop:
        await loop.run()
    assert ledger.done == []
    assert tool_results_in(loop)[0].startswith(
        "[Not run] the compensation of step 1 (cancel): [Invalid call] the arguments"
    )


@dataclass
class Judge:
    """A policy engine that changes its verdict: it denies, or requires an approval, from the second request on."""

    is_embedded = True

    denies: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def judge(self, proposal: GateRequest) -> Verdict:
        if proposal.call is None:
            return a_verdict(True)
        what = f"{proposal.call.name} {proposal.call.arguments.get('what')}"
        is_foreseen = (proposal.purpose, what) not in self.seen
        self.seen.append((proposal.purpose, what))
        terms = ApprovalTerms() if what in self.asks and not is_foreseen else None
        return a_verdict(is_foreseen or what not in self.denies, reason="not now", approval=terms)


async def test_each_step_and_each_compensation_is_judged_separately(client: Client) -> None:
    ledger, engine = Ledger({"book car": fails()}), Judge()
    await run_saga(client, ledger, look(), book("hotel"), book("car"), engine=engine)
    steps = [("saga", "look prices"), ("saga", "book hotel"), ("saga", "book car")]
    back = [("compensation", "cancel hotel"), ("compensation", "cancel car")]
    assert [entry for entry in engine.seen if entry[0] != "reply"] == [*steps, *back, *steps, back[0]]


async def test_a_step_denied_before_it_runs_compensates_the_others(client: Client) -> None:
    ledger = Ledger()
    ran, text = await run_saga(client, ledger, book("hotel"), book("car"), engine=Judge(denies=("book car",)))
    assert ledger.done == ["book hotel", "cancel hotel"]
    assert text.startswith("[Error] saga stopped at step 2 of 2 (book denied); what was done is taken back")
    assert "[Policy denied] not now" in text
    assert compensations(ran) == [("cancel", "ok")]


async def test_a_compensation_denied_before_it_runs_is_reported(client: Client) -> None:
    ledger, engine = Ledger({"pay all": fails()}), Judge(denies=("cancel car",))
    ran, text = await run_saga(client, ledger, book("hotel"), book("car"), pay(), engine=engine)
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
        [question] = await wait_for_held_calls(handle)
        assert (ledger.done, question["call"]["name"]) == (["book hotel"], "pay")
        await send_update(handle, update, approval_argument(question))
        await loop.ended(handle)
    assert ledger.done == done


async def test_parallel_sagas_ask_for_their_approvals_at_the_same_time(client: Client) -> None:
    ledger, engine = Ledger(), Judge(asks=("pay a", "pay b"))
    async with an_agency(client, [sagas((pay("a"),), (pay("b"),)), answers()], *ledger.tools, engine=engine) as loop:
        handle = await loop.start()
        one, other = await wait_for_held_calls(handle, 2)
        assert (await handle.query("status"))["phase"] == "waiting"
        await send_update(handle, "deny", approval_argument(one))
        status = await handle.query("status")
        assert (status["phase"], len(status["pending_approvals"])) == ("waiting", 1)
        await send_update(handle, "approve", approval_argument(other))
        ran = await loop.ended(handle)
    assert len(ledger.done) == 1
    assert ran.result.termination.reason == "completed"


async def test_tool_results_within_a_saga_taint_the_run(client: Client) -> None:
    seen: list[tuple[str, ...]] = []

    class Watching(Judge):
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            seen.append(tuple(proposal.taint))
            return a_verdict(True)

    await run_saga(client, Ledger(), look(), pay(), engine=Watching())
    assert seen[0] == ()
    assert set(seen[-1]) == {"look", "pay"}
