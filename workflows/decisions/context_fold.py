"""Rebuilds from a history what each model call was about: the fold behind a cache miss, `verify` and `audit`."""

from typing import Any

from workflows.types import names
from workflows.types.clipped import clip
from workflows.types.context import DigestMismatch, HashedMessages, MessageRef, ReasonRequest, Setup
from workflows.types.digest import record_digest, reference
from workflows.types.history import Happening
from workflows.types.messages import Message, Reply
from workflows.types.outcome import tool_message
from workflows.types.state import AgentState
from workflows.types.summary import summary_message
from workflows.types.tools import ToolOutput


class ContextFold:
    """Takes in one event after the other."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self.iteration: int = 0
        self._chain = HashedMessages()
        self._base = HashedMessages()
        """What the iteration builds on; a model call that is asked again, after a pause, builds on the same."""
        self._replies: dict[int, Reply] = {}
        self._results: dict[str, str] = {}
        self._summaries: dict[str, str] = {}

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation of the latest model call."""
        return self._chain.messages

    def feed(self, happening: Happening) -> None:
        """Take in the next event of the run.

        Raises:
            DigestMismatch: A model call is about other messages than this history holds.
        """
        match happening.kind:
            case "started":
                self._start(happening)
            case "scheduled" if happening.name in {"reason", "summarise"}:
                self._model_call(ReasonRequest.model_validate(happening.value))
            case "finished":
                self._finish(happening)
            case _:
                pass

    def _start(self, happening: Happening) -> None:
        arguments: list[Any] = happening.value
        if len(arguments) > 1 and arguments[1] is not None:
            self._take_over(AgentState.model_validate(arguments[1]))

    def _take_over(self, state: AgentState) -> None:
        self.setup, self.iteration = state.setup, state.iteration
        self._chain = HashedMessages().plus(state.conversation.messages)
        if state.pending is not None:
            self._replies[state.iteration] = state.pending

    def _finish(self, happening: Happening) -> None:
        match happening.name:
            case names.READ_PAST:
                self._take_over(AgentState.model_validate(happening.value))
            case "prepare":
                self.setup = Setup.model_validate(happening.value)
            case "reason":
                self._replies[self.iteration] = Reply.model_validate(happening.value)
            case "summarise":
                self._summaries[happening.key] = Reply.model_validate(happening.value).text
            case "gate" | names.NOTIFY | "critique":
                pass
            case _:
                self._results[happening.key] = ToolOutput.model_validate(happening.value).content

    def _model_call(self, request: ReasonRequest) -> None:
        if self.setup is None or request.setup not in {"", reference(record_digest(self.setup))}:
            raise DigestMismatch(f"the setup of iteration {request.iteration} is not the one that was recorded")
        if request.iteration != self.iteration:
            self._base = self._chain
        self._chain = request.context.applied(self._base, self._message)
        self.iteration = request.iteration

    def _message(self, news: MessageRef) -> Message:
        if news.message is not None:
            return news.message
        try:
            return news.shown(self._recorded(news))
        except (KeyError, IndexError, ValueError):
            raise DigestMismatch(f"the history does not hold {news.model_dump_json(exclude_unset=True)}") from None

    def _recorded(self, news: MessageRef) -> Message:
        if news.reply is not None:
            return self._replies[news.reply].message()
        if news.summary is not None:
            return summary_message(self._summaries[news.summary])
        iteration, _, index = (news.result or "").partition(".")
        call = self._replies[int(iteration)].calls[int(index)]
        content = self._results[news.result or ""]
        spec = self.setup.tool(call.name) if self.setup else None
        return tool_message(call, clip(content, spec.max_result_bytes) if spec else content, is_error=False)
