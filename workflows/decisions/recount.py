"""Folds over the events of a history: one rebuilds the conversation of each model call, one recounts a result."""

import re
from math import isclose
from typing import Any, cast

from orga.workflows.types import names
from orga.workflows.types.context import (
    DigestMismatch,
    HashedMessages,
    MessageRef,
    ReasonRequest,
    record_digest,
    short_digest,
)
from orga.workflows.types.conversation import knowledge_message, summary_message
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.names import PLANNED_MODEL, PROMPT_ACTIVITIES, READ_PAST
from orga.workflows.types.recall import RecalledContext
from orga.workflows.types.sessions.session import SessionState
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult, Happening
from orga.workflows.types.tool_calls.gate import Verdicts
from orga.workflows.types.tool_calls.tools import ToolOutput, result_message


class ContextFold:
    """Rebuilds the conversation from a run's events, which are fed in order."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self.iteration: int = 0
        self._chain = HashedMessages()
        self._base = HashedMessages()
        """The base of the current iteration. A model call that is repeated after a pause has the same base."""
        self._replies: dict[int, Reply] = {}
        self._results: dict[str, ToolOutput] = {}
        self._summaries: dict[str, str] = {}
        self._recalled: dict[str, str] = {}

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._chain.messages

    def feed(self, happening: Happening) -> None:
        """Apply the next event. Raise DigestMismatch if a model call refers to messages that the history lacks."""
        match happening.kind:
            case "started":
                self._on_started(happening)
            case "scheduled" if happening.name == "summarise" or happening.name in PROMPT_ACTIVITIES:
                self._apply_model_call(ReasonRequest.model_validate(happening.value))
            case "finished":
                self._on_finished(happening)
            case _:
                pass

    def _on_started(self, happening: Happening) -> None:
        arguments: list[Any] = happening.value
        if len(arguments) > 1 and arguments[1] is not None:
            self._adopt_carried_state(AgentState.model_validate(arguments[1]))

    def _adopt_carried_state(self, state: AgentState) -> None:
        self.setup, self.iteration = state.setup, state.iteration
        self._chain = HashedMessages().plus(state.conversation.messages)
        if state.pending is not None:
            self._replies[state.iteration] = state.pending

    def _on_finished(self, happening: Happening) -> None:
        match happening.name:
            case names.READ_PAST:
                self._adopt_carried_state(AgentState.model_validate(happening.value))
            case "prepare":
                self.setup = Setup.model_validate(happening.value)
            case name if name in PROMPT_ACTIVITIES:
                self._replies[self.iteration] = Reply.model_validate(happening.value)
            case "summarise":
                self._summaries[happening.key] = Reply.model_validate(happening.value).text
            case names.RECALL_CONTEXT:
                if text := RecalledContext.model_validate(happening.value).text:
                    self._recalled[happening.key] = text
            case name if name not in names.OWN_ACTIVITIES:
                self._results[happening.key] = ToolOutput.model_validate(happening.value)
            case _:
                pass

    def _apply_model_call(self, request: ReasonRequest) -> None:
        if self.setup is None or request.setup not in {"", short_digest(record_digest(self.setup))}:
            raise DigestMismatch(f"the setup of iteration {request.iteration} is not the one that was recorded")
        if request.iteration != self.iteration:
            self._base = self._chain
        self._chain = request.context.apply_to(self._base, self._news_message)
        self.iteration = request.iteration

    def _news_message(self, news: MessageRef) -> Message:
        if news.message is not None:
            return news.message
        try:
            return news.shown(self._recorded_message(news))
        except (KeyError, IndexError, ValueError):
            raise DigestMismatch(f"the history does not hold {news.model_dump_json(exclude_unset=True)}") from None

    def _recorded_message(self, news: MessageRef) -> Message:
        if news.reply is not None:
            return self._replies[news.reply].message()
        if news.summary is not None:
            return summary_message(self._summaries[news.summary])
        if news.recall is not None:
            return knowledge_message(self._recalled[news.recall])
        iteration, _, index = (news.result or "").partition(".")
        call = self._replies[int(iteration)].calls[int(index)]
        output = self._results[news.result or ""]
        spec = self.setup.tool(call.name) if self.setup else None
        return result_message(call, output, spec)


_ALTERNATIVE_SUFFIX = re.compile(r"\.f\d+$")
"""End of the place of a call that a fallback made."""

_LOOKUP_ID = re.compile(r"0\.\d+(?:\.\d+)?")
"""The place of a lookup: `0.<index>`, or `0.<turn>.<index>` in a session."""


class ResultRecount:
    """Counts what the segments of a run did, event by event, and compares the counts with the run's result."""

    def __init__(self) -> None:
        self._iterations = 0
        self._usage = UsageTotals()
        self._proposals = 0
        self._has_begun = False
        self._alternatives: set[str] = set()

    def feed(self, happening: Happening) -> list[str]:
        """Count the next event. If it completes the run, return the differences from the result."""
        if _ALTERNATIVE_SUFFIX.search(happening.key):
            self._alternatives.add(happening.key)
        match happening.kind:
            case "started":
                self._on_started(happening)
            case "finished" if happening.name == READ_PAST:
                self._adopt_carried_counts(happening.value)
            case "finished" if happening.name in names.MODEL_CALLS:
                self._count_reply(happening)
            case "finished" if happening.name == "gate":
                judged = Verdicts.model_validate(happening.value).by_place(happening.key) or {}
                self._proposals += sum(_LOOKUP_ID.fullmatch(place) is not None for place in judged)
            case "child_finished":
                ended = cast("dict[str, Any]", happening.value or {})
                self._usage = self._usage.plus_totals(UsageTotals.model_validate(ended.get("usage") or {}))
            case "workflow_completed":
                return self._miscounts(AgentResult.model_validate(happening.value))
            case _:
                pass
        return []

    def _on_started(self, happening: Happening) -> None:
        """Start with the totals of earlier segments, if the first known segment has them in its carried state."""
        arguments: list[Any] = happening.value or []
        if not self._has_begun and len(arguments) > 1 and arguments[1] is not None:
            self._adopt_carried_counts(arguments[1])
        self._has_begun = True

    def _adopt_carried_counts(self, given: Any) -> None:
        state = SessionState.model_validate(given)  # reads any run's state, and the earlier turns of a session
        self._iterations, self._usage = state.iteration, state.total_usage
        self._proposals = state.total_calls.proposed

    def _count_reply(self, happening: Happening) -> None:
        reply = Reply.model_validate(happening.value)
        if reply.model != PLANNED_MODEL:
            self._usage = self._usage.plus(reply.usage, reply.cost_usd)
        if happening.name in PROMPT_ACTIVITIES:
            self._iterations += 1
            self._proposals += len(reply.calls) + reply.left_out

    def _miscounts(self, ended: AgentResult) -> list[str]:
        usage, counts = ended.usage, ended.tool_calls
        cost, recount = usage.cost_usd or 0.0, self._usage.cost_usd or 0.0
        tokens = (
            "input_tokens",
            "output_tokens",
            "cached_input_tokens",
            "thinking_tokens",
            "total_tokens",
            "model_calls",
            "estimated_calls",
        )
        pairs = [("iterations", ended.iterations, self._iterations)]
        pairs += [(f"usage.{name}", getattr(usage, name), getattr(self._usage, name)) for name in tokens]
        wrong = [f"{name} is {reported}, counted {counted}" for name, reported, counted in pairs if reported != counted]
        if not isclose(cost, recount, rel_tol=1e-9, abs_tol=1e-9):
            wrong.append(f"usage.cost_usd is {cost}, counted {recount}")
        if len(self._alternatives) > counts.fallbacks:
            wrong.append(f"tool_calls.fallbacks is {counts.fallbacks}, counted {len(self._alternatives)}")
        answered = counts.run + counts.denied + counts.invalid + counts.not_run
        if counts.proposed != answered or counts.proposed - counts.fallbacks > self._proposals:
            wrong.append(f"tool_calls do not add up: {counts.model_dump()} of {self._proposals} proposed")
        return wrong
