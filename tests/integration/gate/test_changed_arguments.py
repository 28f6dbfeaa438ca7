"""A call that policy or a person changed: the model is informed, whatever the purpose, and the changed call counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_person
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.runs.sagas import Ledger, book, pay, saga
from tests.support.values.policies import a_verdict

PUBLIC = {"path": "public"}
CHANGED = '[Arguments changed by policy] {"path":"public"}'


@dataclass
class Redirects:
    """A policy engine that replaces the model's arguments in calls of one purpose."""

    is_embedded = True

    purpose: str

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Change the arguments once."""
        call = proposal.call
        is_changed = call is not None and proposal.purpose == self.purpose and call.arguments != PUBLIC
        return a_verdict(True, arguments=PUBLIC if is_changed else None)


def recovering(**recovery: Any) -> ToolOptions:
    return ToolOptions(recovery=Recovery(max_attempts=1, **recovery))


async def test_the_model_learns_of_a_changed_fallback(client: Client) -> None:
    def down(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("down")

    read = FakeTool("read", down, options=recovering(strategy="fallback", alternatives=("look",)))
    look = FakeTool("look", lambda a, c: f"saw {a}")
    steps = [calls("read", arguments={"path": "secret"}), answers()]
    async with a_loop(client, steps, read, look, engine=Redirects("fallback")) as loop:
        await loop.run()

    [text] = tool_results_in(loop)
    assert text.startswith(f"{CHANGED}\n[Fallback] look answered instead")
    assert text.endswith("saw {'path': 'public'}")


async def test_the_model_learns_of_a_changed_requeued_call(client: Client) -> None:
    def later(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(save.contexts) == 1:
            raise ToolError("down")
        return f"saved {arguments}"

    async def sends_it_again() -> str:
        await send_update(handle, "requeue", "1.0")
        return "sent"

    save = FakeTool("save", later, options=recovering(strategy="dead_letter"))
    wait = FakeTool("wait", lambda a, c: sends_it_again())
    steps = [calls("save", arguments={"path": "secret"}), calls("wait"), answers()]
    async with a_loop(client, steps, save, wait, engine=Redirects("requeue")) as loop:
        handle = await loop.start()
        await loop.ended(handle)

    assert isinstance(loop.provider, ScriptedModel)
    last = undelimited_text(loop.provider.seen[2].messages[-1].text)
    assert last == f"[Requeued call] save (1.0), sent again by an operator:\n{CHANGED}\nsaved {PUBLIC}"


async def test_the_step_limit_counts_the_changed_call(client: Client) -> None:
    def declined(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("declined for good", retryable=False)

    tool = FakeTool("pay", declined)
    script = [*[calls("pay", arguments={"path": "secret"})] * 6, answers()]
    async with a_loop(client, script, tool, engine=Redirects("reply")) as loop:
        ran = await loop.run()

    assert "StepLimitReached" in ran.events
    assert len(tool.contexts) == 2


async def test_critics_review_a_saga_as_changed_by_policy(client: Client) -> None:
    class Adds:
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            call = proposal.call
            if call is not None and call.name == "saga" and len(call.arguments["steps"]) == 1:
                return a_verdict(True, arguments={"steps": [book("flight"), pay()]})
            return a_verdict(True)

    ledger = Ledger()
    critic = a_person(tools=("pay",))
    agents = {"default": AgentConfig(tools=("look", "book", "cancel", "pay", "saga"), critics=(critic,))}
    script = [saga(book("flight")), answers()]
    async with a_loop(client, script, *ledger.tools, engine=Adds(), agents=agents) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        assert question["call"]["name"] == "saga"
        await send_update(handle, "deny", approval_argument(question, reason="too dear"))
        await loop.ended(handle)

    assert ledger.done == []


PARAMETERS = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}, "note": {"type": "string"}},
    "required": ["amount"],
}


@dataclass
class Limits(Asks):
    """A policy engine that asks about payments, and denies those above ten."""

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Deny large payments."""
        given = await super().judge(proposal)
        is_large = proposal.call is not None and proposal.call.arguments.get("amount", 0) > 10
        return a_verdict(False, reason="too much", version=self.version) if is_large else given


async def approves(client: Client, *decisions: Mapping[str, Any], by_signal: bool = False) -> tuple[FakeTool, Ran, str]:
    """Return the tool, the run and the text of the result, after a person made these decisions one after the other."""
    pay, engine = FakeTool("pay", effect="irreversible", parameters=PARAMETERS), Limits()
    async with a_loop(client, [calls("pay", arguments={"amount": 7}), answers()], pay, engine=engine) as loop:
        handle = await loop.start()
        seen: list[str] = []
        for decision in decisions:

            async def is_asked_anew() -> bool:
                return (await wait_for_held_calls(handle))[0]["approval_id"] not in seen

            await wait_until(is_asked_anew)
            [question] = await wait_for_held_calls(handle)
            seen.append(question["approval_id"])
            argument = approval_argument(question, **decision)
            await (handle.signal("approve", argument) if by_signal else send_update(handle, "approve", argument))
        ran = await loop.ended(handle)
        [text] = tool_results_in(loop)
    return pay, ran, text


@pytest.mark.parametrize("by_signal", [False, True])
async def test_a_call_runs_only_with_the_arguments_that_a_person_approved(client: Client, by_signal: bool) -> None:
    pay, ran, text = await approves(client, {"arguments": {"amount": 5, "note": "half"}}, by_signal=by_signal)
    assert pay.calls == [{"amount": 5, "note": "half"}]
    assert text == '[Arguments changed by ada] {"amount":5,"note":"half"}\nok'
    asked = next(entry for entry in ran.journal if entry.event == "ApprovalRequested" and entry.data["kind"] == "call")
    decided = next(entry for entry in ran.journal if entry.event == "ApprovalResolved" and entry.data["kind"] == "call")
    assert (asked.data["arguments"], decided.data["arguments"]) == ('{"amount":7}', '{"amount": 5, "note": "half"}')


async def test_policy_also_judges_what_a_person_changed(client: Client) -> None:
    pay, _, text = await approves(client, {"arguments": {"amount": 11}})
    assert (pay.calls, text) == ([], "[Policy denied] too much")


async def test_a_call_is_held_again_if_changed_arguments_do_not_fit(client: Client) -> None:
    pay, ran, text = await approves(client, {"arguments": {"amount": "all"}}, {"arguments": {"amount": 2}})
    assert (pay.calls, text) == ([{"amount": 2}], '[Arguments changed by ada] {"amount":2}\nok')
    reasons = [e.data["reason"] for e in ran.journal if e.event == "ApprovalRequested" and e.data["kind"] == "call"]
    assert reasons[0] == "money moves"
    assert reasons[1].startswith("as ada approved it: the arguments of pay do not fit: ")
    pay, _, text = await approves(client, {"arguments": {}}, {})
    assert (pay.calls, text) == ([{"amount": 7}], "ok"), "a later approval is for the call as the model made it"


async def test_a_call_that_was_approved_is_not_asked_about_again(client: Client) -> None:
    """The other call of the reply is held again, because its changed arguments do not fit."""
    pay, engine = FakeTool("pay", effect="irreversible", parameters=PARAMETERS), Limits()
    both = calls("pay", "pay", arguments={"amount": 7})
    async with a_loop(client, [both, answers()], pay, engine=engine) as loop:
        handle = await loop.start()
        first, second = await wait_for_held_calls(handle, 2)
        await send_update(handle, "approve", approval_argument(first, arguments={}))
        await send_update(handle, "approve", approval_argument(second))

        async def is_held_again() -> bool:
            return [each["approval_id"] for each in await wait_for_held_calls(handle)] != [second["approval_id"]]

        await wait_until(is_held_again)
        [again] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(again, approver="bob", arguments={"amount": 3}))
        await loop.ended(handle)
    assert sorted(call["amount"] for call in pay.calls) == [3, 7]


async def test_arguments_that_cannot_be_changed_are_refused(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible", parameters=PARAMETERS)
    async with a_loop(
        client, [calls("pay", arguments={"amount": 7}), answers()], pay, engine=Asks(answer=True)
    ) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        refusals = [
            await refusal_of(handle, "deny", approval_argument(question, arguments={"amount": 1})),
            await refusal_of(handle, "approve", approval_argument(question, arguments=[1])),
            await refusal_of(handle, "approve", approval_argument(question, arguments={"note": "x" * 30_000})),
        ]
        await send_update(handle, "approve", approval_argument(question))
        [final] = await wait_for_held_calls(handle)
        refusals.append(await refusal_of(handle, "approve", approval_argument(final, arguments={"answer": "no"})))
        await send_update(handle, "approve", approval_argument(final))
        await loop.ended(handle)
    wanted = ["only an approval", "arguments: ", "at most 20,000 characters", "only the arguments of a call"]
    assert all(part in text for part, text in zip(wanted, refusals, strict=True)), refusals
    assert pay.calls == [{"amount": 7}]


async def refusal_of(handle: WorkflowHandle[Any, Any], update: str, argument: dict[str, Any]) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as raised:
        await send_update(handle, update, argument)
    return str(raised.value.cause)
