"""Calls that wait next to held ones: each allowed call is judged again before it starts."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.runs.approvals import approval_argument, wait_for_held_calls
from tests.support.runs.loop import Loop, Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.values.policies import a_verdict


@dataclass
class Changing:
    """A policy engine that requires approval of `pay`, and whose other rules can change."""

    is_embedded = True

    denied: set[str] = field(default_factory=set[str])
    asks: set[str] = field(default_factory=lambda: {"pay"})
    arguments: dict[str, Any] | None = None
    """The replacement for the arguments of `look`."""
    version: str = "v1"

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Decide by the current rules."""
        call = proposal.call
        if call is None or call.name in self.denied:
            return a_verdict(call is None, reason="not any more", version=self.version)
        terms = ApprovalTerms() if call.name in self.asks else None
        arguments = self.arguments if call.name == "look" and call.arguments != self.arguments else None
        return a_verdict(True, approval=terms, arguments=arguments, version=self.version)


async def run_with_changed_rules(loop: Loop, engine: Changing, answer: str, **rules: Any) -> Ran:
    """Run until the question, change the rules, then answer it."""
    handle = await loop.start()
    [question] = await wait_for_held_calls(handle)
    for name, value in rules.items():
        setattr(engine, name, value)
    await send_update(handle, answer, approval_argument(question))
    return await loop.ended(handle)


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_a_waiting_call_that_is_forbidden_meanwhile_does_not_run(client: Client, answer: str) -> None:
    pay, look, engine = FakeTool("pay"), FakeTool("look"), Changing()
    async with a_loop(client, [calls("look", "pay"), answers()], pay, look, engine=engine) as loop:
        ran = await run_with_changed_rules(loop, engine, answer, denied={"look"})

    assert (look.contexts, len(pay.contexts)) == ([], 1 if answer == "approve" else 0)
    assert tool_results_in(loop)[0] == "[Policy denied] not any more"
    assert ran.result.tool_calls.denied == (1 if answer == "approve" else 2)


async def test_a_waiting_call_that_is_still_allowed_runs_once(client: Client) -> None:
    pay, look, engine = FakeTool("pay"), FakeTool("look"), Changing()
    async with a_loop(client, [calls("look", "pay", "look"), answers()], pay, look, engine=engine) as loop:
        ran = await run_with_changed_rules(loop, engine, "approve")

    assert (len(look.contexts), len(pay.contexts)) == (2, 1)
    judged = [entry.data["action_count"] for entry in ran.journal if entry.event == "PolicyEvaluated"]
    assert judged == [3, 2, 1, 1]


async def test_a_changed_policy_set_asks_again_for_all_calls(client: Client) -> None:
    """The approval of `pay` was for the old rules. Under the new ones it is asked for together with `look`."""
    pay, look, engine = FakeTool("pay"), FakeTool("look"), Changing()
    async with a_loop(client, [calls("look", "pay"), answers()], pay, look, engine=engine) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        engine.asks, engine.version = {"pay", "look"}, "v2"
        await send_update(handle, "approve", approval_argument(question))
        both = await wait_for_held_calls(handle, 2)
        assert [again["call"]["name"] for again in both] == ["look", "pay"]
        assert (look.contexts, pay.contexts) == ([], [])
        for again in both:
            await send_update(handle, "approve", approval_argument(again))
        await loop.ended(handle)

    assert (len(look.contexts), len(pay.contexts)) == (1, 1)


async def test_the_model_learns_of_arguments_that_policy_changed_before_the_wait(client: Client) -> None:
    seen: list[dict[str, Any]] = []

    def look(arguments: dict[str, Any], context: object) -> str:
        seen.append(arguments)
        return "seen"

    engine = Changing(arguments={"path": "public"})
    tools = [FakeTool("pay"), FakeTool("look", look)]
    async with a_loop(
        client, [calls("look", "pay", arguments={"path": "secret"}), answers()], *tools, engine=engine
    ) as loop:
        await run_with_changed_rules(loop, engine, "approve")

    assert seen == [{"path": "public"}]
    assert "public" in tool_results_in(loop)[0]
    assert tool_results_in(loop)[0].endswith("seen")
