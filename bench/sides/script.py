"""The scripted model and the tool's result, which are the same on both sides and come at once."""

from collections.abc import Callable
from itertools import count

from orga.activities.ports import ModelProvider, ModelRequest
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage

MODEL = "scripted:bench"
TOOL = "read_file"
ARGUMENTS = {"path": "README.md"}
TEXT = "I read the file next, since the question is about it."
RESULT_BYTES = 2_000
RESULT = "x" * RESULT_BYTES


class Script:
    """Calls the tool every time, with an id as long as those of providers."""

    def __init__(self, on_reply: Callable[[int], None] = lambda number: None) -> None:
        """Call `on_reply` with the number of each reply."""
        self._numbers = count(1)
        self._on_reply = on_reply

    def reply(self) -> Reply:
        number = next(self._numbers)
        self._on_reply(number)
        call = ToolCall(call_id=f"call_{number:024x}", name=TOOL, arguments=ARGUMENTS)
        usage = Usage(input_tokens=1_000, output_tokens=20)
        return Reply.of(TEXT, calls=(call,), finish="tool_calls", usage=usage)

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Be a provider."""
        reply = self.reply()
        on_text(reply.text)
        return reply

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Be the only provider."""
        return self, name
