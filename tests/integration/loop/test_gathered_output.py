"""At a limit, `output` contains the text gathered so far, as far as the gate allows it."""

from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.proof.verify import verify
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import Hold
from tests.support.runs.critics import a_critic, agents_with_critics
from tests.support.runs.delegates import a_cast, agent, delegates, run_lead, start_lead
from tests.support.runs.loop import Deny, Ran, a_loop
from tests.support.values.policies import a_verdict

LOOK = calls("look", reply_text="The first file is fine.")


class Judges:
    """An engine that allows all calls, and denies only answers with one word."""

    is_embedded = True

    def __init__(self, word: str) -> None:
        self._word = word

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Deny an answer with the word."""
        return a_verdict(proposal.call is not None or self._word not in (proposal.answer or ""), "no such words")


async def run_to_its_end(client: Client, steps: Sequence[Step], engine: Any = None, **config: Any) -> Ran:
    async with a_loop(client, steps, FakeTool("look"), FakeTool("rm"), engine=engine) as loop:
        return await loop.run(**config)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"max_iterations": 2}, "max_iterations"),
        ({"max_total_tokens": 200}, "max_tokens"),
        ({"max_model_calls": 2}, "max_iterations"),
        ({"max_tool_calls": 0}, "max_iterations"),
    ],
)
async def test_text_next_to_calls_is_the_output_at_a_limit(client: Client, config: dict[str, Any], reason: str) -> None:
    found = await run_to_its_end(client, [LOOK, calls("look"), answers("never")], **config)
    assert (found.result.termination.reason, found.result.output) == (reason, "The first file is fine.")
    assert (await verify(client, found.handle.id)).ok
    assert [entry.data["about"] for entry in found.journal if "about" in entry.data] == ["ending"]


async def test_all_texts_are_returned_in_order(client: Client) -> None:
    steps = [calls("look", reply_text=f"Part {number}.", arguments={"n": number}) for number in range(3)]
    assert (await run_to_its_end(client, steps, max_iterations=3)).result.output == "Part 0.\n\nPart 1.\n\nPart 2."


async def test_an_abort_returns_the_gathered_text(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [LOOK, hold.step(answers())], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        found = await loop.ended(handle)
    assert (found.result.termination.reason, found.result.output) == ("aborted", "The first file is fine.")


async def test_a_run_without_text_or_with_an_answer_is_unchanged(client: Client) -> None:
    assert (await run_to_its_end(client, [calls("look")], max_iterations=1)).result.output == ""
    found = await run_to_its_end(client, [LOOK, answers("done")])
    assert (found.result.output, found.events.count("PolicyEvaluated")) == ("done", 2)


@pytest.mark.parametrize(
    ("steps", "engine"),
    [
        pytest.param([LOOK], Judges("fine"), id="policy denies the text as an answer"),
        pytest.param([calls("look", "rm", reply_text="A secret.")], Deny("rm"), id="a call next to it was denied"),
        pytest.param([calls("look", "nope", reply_text="A secret.")], None, id="a call next to it was invalid"),
    ],
)
async def test_text_that_the_gate_did_not_allow_is_not_returned(
    client: Client, steps: Sequence[Step], engine: Any
) -> None:
    assert (await run_to_its_end(client, steps, engine, max_iterations=1)).result.output == ""


async def test_text_that_critics_have_not_reviewed_is_not_returned(client: Client) -> None:
    agents = agents_with_critics(a_critic(), tools=("look",))
    async with a_loop(client, [LOOK], FakeTool("look"), agents=agents) as loop:
        assert (await loop.run(max_iterations=1)).result.output == ""


@pytest.mark.parametrize(
    "helper",
    [
        pytest.param([answers("42 files")], id="its answer, which came too late"),
        pytest.param([calls("look", reply_text="42 files")], id="its text so far"),
    ],
)
async def test_the_text_of_a_delegate_is_returned(client: Client, helper: list[Step]) -> None:
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["look"], max_iterations=1)}
    async with a_cast(client, agents, {"lead": [delegates("helper")], "helper": helper}, FakeTool("look")) as (loop, _):
        found = await run_lead(loop, max_total_tokens=220)
    assert (found.result.termination.reason, found.result.output) == ("max_tokens", "42 files")


async def test_an_abort_during_a_delegate_returns_the_text_of_the_delegate(client: Client) -> None:
    hold = Hold()
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper")], "helper": [calls("look", reply_text="42 files"), hold.step(answers())]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        await handle.signal("abort", "enough")
        found = await loop.ended(handle)
    assert (found.result.termination.reason, found.result.output) == ("aborted", "42 files")
