"""A model and a policy engine without state, so that another process can continue."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orga.activities.ports import ModelRequest
from orga.client.testing.script import USAGE
from orga.testing import answers
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.model.goals import SteadyModel, a_step, requesting_message, says
from tests.support.values.policies import a_verdict


@dataclass(frozen=True)
class PlannedModel:
    """Calls the tools that the task names, one in each turn, then answers with all tool results.

    `helper:look+send` delegates the task `look send` to that agent; `saga:book-cancel+send` is a saga of a step with
    its compensation and a final one; `decide:l` decides on that size; `fact:sky+blue` stores that the sky is blue.
    """

    tools: frozenset[str]
    reached: Callable[[str], None]

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        if request.tool_choice == "none":
            self.reached("summary")
            return Reply.of(f"{len(request.messages[0].text)} characters, summed up", usage=USAGE)
        plan = [word for word in request.messages[0].text.split() if word in self.tools or ":" in word]
        made = [call.call_id for message in request.messages for call in message.calls]
        turn = int(made[-1].removeprefix("turn_")) + 1 if made else 0
        self.reached(f"model call {turn + 1}")
        if turn < len(plan):
            return Reply.of(calls=(_call(f"turn_{turn}", plan[turn]),), finish="tool_calls", usage=USAGE)
        texts = [message.text for message in request.messages[1:] if message.role != "assistant"]
        return answers("\n".join(undelimited_text(text) for text in texts))


def _call(call_id: str, word: str) -> ToolCall:
    agent, _, task = word.rpartition(":")
    if not agent:
        return ToolCall(call_id=call_id, name=task)
    if agent == "decide":
        return ToolCall(call_id=call_id, name="decide", arguments={"decision": "size", "fields": {"size": task}})
    if agent == "fact":
        subject, _, value = task.partition("+")
        fact = {"subject": subject, "predicate": "is", "object": value}
        return ToolCall(call_id=call_id, name="store_knowledge", arguments=fact)
    if agent == "saga":
        return ToolCall(call_id=call_id, name="saga", arguments={"steps": [_step(part) for part in task.split("+")]})
    return ToolCall(call_id=call_id, name="delegate", arguments={"agent": agent, "task": task.replace("+", " ")})


def _step(part: str) -> dict[str, Any]:
    tool, _, back = part.partition("-")
    if not back:
        return {"tool": tool, "arguments": {}, "kind": "final"}
    return {"tool": tool, "arguments": {}, "kind": "compensatable", "compensation": {"tool": back, "arguments": {}}}


@dataclass(frozen=True)
class Lenient:
    """Allows everything, but `pay` only with approval by ada."""

    is_embedded = True

    reached: Callable[[str], None]

    async def judge(self, proposal: GateRequest) -> Verdict:
        self.reached(f"gate {proposal.iteration}")
        if proposal.call is not None:
            self.reached(f"gate of {proposal.call.name}")
        asks = proposal.call is not None and proposal.call.name == "pay"
        return a_verdict(True, approval=ApprovalTerms(approvers=("ada",)) if asks else None)


class DelegatingModel(SteadyModel):
    """Plans a step for the agent `helper`, which calls all tools one by one, and one step after it."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply for the goal or its agent."""
        if not any(goal_prompt_in(message.text) for message in request.messages):
            return await PlannedModel(frozenset(self._tools), self._reached).complete(request, on_text)
        reply = await super().complete(request, on_text)
        if goal_prompt_in(requesting_message(request)) != "goal_plan":
            return reply
        trip = a_step("trip", "helper", task=" ".join(self._tools))
        return says(steps=[trip, a_step("last", self._tools[0], "trip")])
