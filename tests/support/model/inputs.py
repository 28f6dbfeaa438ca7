"""A model of agents that process one input each, which names a tool, and of the agent that joins their results."""

from collections.abc import Callable

from orga.activities.ports import ModelRequest
from orga.testing import answers, calls
from orga.workflows.types.messages import Reply

JOINS = "what came of input"


class InputModel:
    """Calls the tool that its input names once, and reports it. It joins by counting, and has no state."""

    def __init__(self, tools: frozenset[str], reached: Callable[[str], None]) -> None:
        self._tools = tools
        self._reached = reached

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Reply from the request alone, after informing the watcher."""
        task = request.messages[0].text
        if JOINS in task:
            self._reached("reduce")
            return answers(f"{task.count(' is used')} joined")
        [tool] = self._tools.intersection(task.splitlines())
        if any(message.calls for message in request.messages):
            return answers(f"{tool} is used")
        return calls(tool)
