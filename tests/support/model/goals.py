"""Models that pursue goals: one returns scripted replies for each turn, one carries out whatever is requested."""

import re
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from orga.activities.ports import ModelRequest
from orga.testing import answers
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply, ToolCall

GOOD = {"relevance": 5, "completeness": 4, "usability": 4, "goal_progress": 4}
PARTIAL = {"relevance": 3, "completeness": 2, "usability": 3, "goal_progress": 2}
"""Scores of a finished step that no rule takes as reaching the goal, so the model decides."""

BAD = {"relevance": 1, "completeness": 1, "usability": 2, "goal_progress": 1}
"""Scores of a failed step: the model's `done` does not count if no other step is done."""


def says(**said: Any) -> Reply:
    """Return a reply of one JSON object."""
    return answers(to_json(said).decode())


def a_step(step_id: str, skill: str = "look", *needs: str, **arguments: Any) -> dict[str, Any]:
    """Return a step of a plan."""
    return {"id": step_id, "goal": f"do {step_id}", "skill": skill, "arguments": arguments, "depends_on": list(needs)}


def evaluation_reply(*ids: str, **scores: int) -> Reply:
    """Return an evaluation of these steps. Without scores it is a good one."""
    return says(steps=[{"id": each, **(scores or GOOD)} for each in ids])


def requesting_message(request: ModelRequest) -> str:
    """Return the message that requests the turn."""
    return next(m.text for m in reversed(request.messages) if m.role == "user" and goal_prompt_in(m.text))


class GoalModel:
    """Returns the scripted replies of each turn in order, and repeats the last one."""

    def __init__(self, **turns: Reply | list[Reply]) -> None:
        self._turns = {f"goal_{name}": said if isinstance(said, list) else [said] for name, said in turns.items()}
        self.asked: list[tuple[str, str]] = []

    @property
    def turns(self) -> list[str]:
        """The turns for which it was called."""
        return [turn.removeprefix("goal_") for turn, _ in self.asked]

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the turn."""
        turn = goal_prompt_in(requesting_message(request))
        said = self._turns.get(turn) or [answers("the final answer")]
        count = sum(1 for each, _ in self.asked if each == turn)
        self.asked.append((turn, "\n".join(message.text for message in request.messages)))
        return said[min(count, len(said) - 1)]


class SteadyModel:
    """Plans one step per tool in parallel and one after them, and rates all as good. It has no state."""

    def __init__(self, tools: frozenset[str], reached: Callable[[str], None]) -> None:
        self._tools = sorted(tools)
        self._reached = reached

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the requested reply, after informing the watcher."""
        text = requesting_message(request)
        turn = goal_prompt_in(text)
        self._reached(turn)
        if turn == "goal_plan":
            first = [a_step(tool, tool) for tool in self._tools]
            return says(steps=[*first, self._last()])
        if turn == "goal_input":
            return Reply.of(calls=[ToolCall(call_id="last", name=self._tools[0], arguments={})], finish="tool_calls")
        if turn == "goal_evaluate":
            return evaluation_reply(*re.findall(r"^- (\S+): ", text, re.MULTILINE))
        if turn == "goal_decide":
            return says(action="done" if "No step is open" in text else "continue", confidence=0.9)
        return answers("the final answer")

    def _last(self) -> dict[str, Any]:
        return a_step("last", self._tools[0], self._tools[0])


class CallingModel(SteadyModel):
    """Makes the call of the last step itself, once the steps before it are done."""

    def _last(self) -> dict[str, Any]:
        return super()._last() | {"arguments": None}
