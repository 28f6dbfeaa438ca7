"""A call that policy changed: the model is informed, whatever the purpose, and the changed call counts."""

from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.approvals import approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_person
from tests.support.runs.loop import a_loop
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
