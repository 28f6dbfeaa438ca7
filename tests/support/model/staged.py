"""A model that leads each goal through every state, and blocks in the state that a test names."""

import re
from collections.abc import Callable
from typing import Any

from temporalio import activity

from orga.activities.ports import ModelRequest, ToolContext
from orga.testing import answers
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply
from tests.support.hold import Hold
from tests.support.model.goals import GOOD, a_step, requesting_message, says

FAIR = {"relevance": 3, "completeness": 3, "usability": 3, "goal_progress": 3}
QUESTION = "Which year?"
LONG_MEMORY, SHORT_MEMORY = "m" * 600, "what matters"

PLACES = {"plan": 1, "execute": 2, "evaluate": 2, "compress": 1, "decide": 1, "summary": 1}
"""The turn of this name at which a goal blocks. `execute` counts calls of the tool."""

TURNS = ["plan", "evaluate", "evaluate", "evaluate", "compress", "decide", "decide", "summary"]
"""The turns of an undisturbed goal. The last round is fair, so the model decides: it asks, and ends with an answer."""


class Staged:
    """One goal: the requests to its model, the calls of its tool, and the place where it blocks."""

    def __init__(self, place: str = "") -> None:
        """Block at this place, or nowhere if it is ""."""
        self.place = place
        self.hold = Hold()
        self.asked: list[tuple[str, str]] = []
        self.keys: list[str] = []
        """Idempotency keys, one for each call of the tool."""
        self.looked_at: list[int] = []
        """Arguments of the tool's calls."""

    @property
    def turns(self) -> list[str]:
        """The turns for which the model was called."""
        return [turn for turn, _ in self.asked]

    async def reply(self, request: ModelRequest) -> Reply:
        """Return the next reply, from the request alone."""
        text = requesting_message(request)
        turn = goal_prompt_in(text).removeprefix("goal_")
        whole = "\n".join(message.text for message in request.messages)
        self.asked.append((turn, whole))
        return await self._blocking(turn, self.turns.count(turn), _reply_of(turn, text, whole))

    async def look(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Act as the tool."""
        self.keys.append(context.idempotency_key)
        self.looked_at.append(arguments["at"])
        return await self._blocking("execute", len(self.keys), f"seen {arguments['at']}")

    async def _blocking(self, place: str, number: int, value: Any) -> Any:
        if place == self.place and number == PLACES[place]:
            return await self.hold.then(value)
        return value


def _reply_of(turn: str, text: str, whole: str) -> Reply:
    if turn == "plan":
        return says(steps=[a_step("s1", at=1), a_step("s2", "look", "s1", at=2), a_step("s3", "look", "s2", at=3)])
    if turn == "evaluate":
        due = re.findall(r"^- (\S+): ", text, re.MULTILINE)
        return says(steps=[{"id": step, **(FAIR if step == "s3" else GOOD)} for step in due], memory=LONG_MEMORY)
    if turn == "compress":
        return says(memory=SHORT_MEMORY)
    if turn == "decide" and "No step is open" not in text:
        return says(action="continue", confidence=0.9)
    if turn == "decide" and "[Answer of the operator]" not in whole:
        return says(action="ask_user", question=QUESTION, confidence=0.9)
    return says(action="done", confidence=0.9) if turn == "decide" else answers("the final answer")


class StagedModel:
    """Plays each goal of a worker with its own stage."""

    def __init__(self) -> None:
        self._stages: dict[str, Staged] = {}

    def stage(self, workflow_id: str, place: str) -> Staged:
        """Prepare a goal before it is started."""
        self._stages[workflow_id] = Staged(place)
        return self._stages[workflow_id]

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply of that goal's model."""
        return await self._stages[activity.info().workflow_id or ""].reply(request)

    async def look(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Act as the tool of that goal."""
        return await self._stages[context.workflow_id].look(arguments, context)


class WatchedStages:
    """Leads a goal through every state without own state, and informs the watcher of each turn first."""

    def __init__(self, tools: frozenset[str], reached: Callable[[str], None]) -> None:
        self._reached = reached

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply."""
        text = requesting_message(request)
        turn = goal_prompt_in(text)
        self._reached(turn)
        return _reply_of(turn.removeprefix("goal_"), text, "\n".join(message.text for message in request.messages))
