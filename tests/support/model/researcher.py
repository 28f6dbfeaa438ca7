"""A model that pursues a goal at length, as a real one does: full plans, long reasons, and a growing memory."""

import re
from collections.abc import Callable
from typing import Any

from orga.activities.ports import ModelRequest
from orga.client.testing.script import USAGE
from orga.testing import answers
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply, ToolCall
from tests.support.model.goals import GOOD, a_step, requesting_message, says

SEARCH, READ = "search_text", "read_file"
STEPS_A_PLAN = 8  # as many as `max_plan_steps` allows

_TO_DO = re.compile(r"^- (\S+) \((\w+)\): ", re.MULTILINE)
_TO_JUDGE = re.compile(r"^- (\S+): ", re.MULTILINE)
_REMARK = "The release of March moved the limits of the gateway into a table of their own, one row for each tenant. "
_PARTIAL = GOOD | {"completeness": 2, "goal_progress": 2}


class Researcher:
    """Plans four searches at a time, each followed by a read. It is never satisfied, so it keeps planning."""

    def __init__(self) -> None:
        """Start with the first plan."""
        self._plans = 0
        self._memory = ""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply for the requested turn."""
        text = requesting_message(request)
        match goal_prompt_in(text):
            case "goal_plan":
                return says(steps=self._steps(), memory=self._memory_of("begun"))
            case "goal_input":
                made = (self._call(step_id, skill) for step_id, skill in _TO_DO.findall(text))
                return Reply.of("I read what was found.", calls=tuple(made), finish="tool_calls", usage=USAGE)
            case "goal_evaluate":
                ids = _TO_JUDGE.findall(text)
                judged = [{"id": each, **_scores(each), "quality": "fine", "summary": _REMARK * 2} for each in ids]
                return says(steps=judged, memory=self._memory_of(", ".join(ids)))
            case "goal_compress":
                self._memory = self._memory[-300:]
                return says(memory=self._memory)
            case "goal_decide":
                steps = self._steps()
                return says(
                    action="adjust", confidence=0.6, reason=_REMARK, steps=steps, memory=self._memory_of("more")
                )
            case _:
                return answers(_REMARK * 20)

    def _memory_of(self, about: str) -> str:
        self._memory += f"{about}: {_REMARK}"
        return self._memory

    def _steps(self) -> list[dict[str, Any]]:
        """Return a plan. The arguments of a read depend on the search before it, so they are made afterwards."""
        self._plans += 1
        found = [f"find{self._plans}-{n}" for n in range(STEPS_A_PLAN // 2)]
        searches = [
            a_step(each, SEARCH, query=f"limit {each}") | {"goal": f"Find where {each} is told"} for each in found
        ]
        unmade = [{"arguments": None, "goal": f"Read what {each} found"} for each in found]
        reads = [a_step(f"read-{each}", READ, each) | rest for each, rest in zip(found, unmade, strict=True)]
        return [*searches, *reads]

    def _call(self, step_id: str, skill: str) -> ToolCall:
        arguments = {"path": f"docs/chapters/{step_id}.md"} if skill == READ else {"query": f"limit {step_id}"}
        return ToolCall(call_id=f"call_{step_id:0>24}", name=skill, arguments=arguments)


def _scores(step_id: str) -> dict[str, int]:
    return _PARTIAL if step_id.startswith("read") else GOOD
