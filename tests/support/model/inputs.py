"""A model of agents that each see to one input, which names a tool, and of the one that joins what came of them."""

from collections.abc import Callable

from orga.activities.ports import ModelRequest
from orga.testing import answers, calls
from orga.workflows.types.messages import Reply

JOINS = "what came of input"


class InputModel:
    """Calls the tool that its input names, once, and says so; joins by a count. It knows no past."""

    def __init__(self, tools: frozenset[str], reached: Callable[[str], None]) -> None:
        self._tools = tools
        self._reached = reached

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Go by what it reads alone; whoever watches is told first."""
        task = request.messages[0].text
        if JOINS in task:
            self._reached("reduce")
            return answers(f"{task.count(' is used')} joined")
        [tool] = self._tools.intersection(task.splitlines())
        if any(message.calls for message in request.messages):
            return answers(f"{tool} is used")
        return calls(tool)
