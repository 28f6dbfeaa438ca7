"""Counting anew, event by event, what the result of a run says that it did."""

import re
from math import isclose
from typing import Any, cast

from workflows.types.gate import Verdicts
from workflows.types.history import Happening
from workflows.types.messages import Reply
from workflows.types.names import READ_PAST
from workflows.types.result import AgentResult
from workflows.types.state import AgentState
from workflows.types.usage import UsageTotals

_ALTERNATIVE = re.compile(r"\.f\d+$")
"""At the end of the place of a call that a recovery made."""

MODEL_CALLS = frozenset({"reason", "summarise", "critique"})


class Recount:
    """Takes in the events of a chain of runs, in order."""

    def __init__(self) -> None:
        self._iterations = 0
        self._usage = UsageTotals()
        self._proposals = 0
        self._has_begun = False
        self._has_reasoned = False
        self._alternatives: set[str] = set()

    def feed(self, happening: Happening) -> list[str]:
        """Return what the result says otherwise, once the run is completed."""
        if _ALTERNATIVE.search(happening.key):
            self._alternatives.add(happening.key)
        match happening.kind:
            case "started":
                self._start(happening)
            case "finished" if happening.name == READ_PAST:
                self._take_over(happening.value)
            case "finished" if happening.name in MODEL_CALLS:
                self._count(happening)
            case "finished" if happening.name == "gate" and not self._has_reasoned:  # of pre-hydration
                self._proposals += len(Verdicts.model_validate(happening.value).verdicts)
            case "child_finished":
                ended = cast("dict[str, Any]", happening.value or {})
                self._usage = self._usage.plus_totals(UsageTotals.model_validate(ended.get("usage") or {}))
            case "workflow_completed":
                return self._miscounts(AgentResult.model_validate(happening.value))
            case _:
                pass
        return []

    def _start(self, happening: Happening) -> None:
        """Begin with what was carried out of runs that are gone."""
        arguments: list[Any] = happening.value or []
        if not self._has_begun and len(arguments) > 1 and arguments[1] is not None:
            self._take_over(arguments[1])
        self._has_begun = True

    def _take_over(self, given: Any) -> None:
        state = AgentState.model_validate(given)
        self._iterations, self._usage = state.iteration, state.usage
        self._proposals = state.tool_calls.proposed

    def _count(self, happening: Happening) -> None:
        reply = Reply.model_validate(happening.value)
        self._usage = self._usage.plus(reply.usage, reply.cost_usd)
        if happening.name == "reason":
            self._iterations += 1
            self._has_reasoned = True
            self._proposals += len(reply.calls) + reply.left_out

    def _miscounts(self, ended: AgentResult) -> list[str]:
        usage, counts = ended.usage, ended.tool_calls
        cost, recount = usage.cost_usd or 0.0, self._usage.cost_usd or 0.0
        tokens = ("input_tokens", "output_tokens", "cached_input_tokens", "total_tokens", "model_calls")
        pairs = [("iterations", ended.iterations, self._iterations)]
        pairs += [(f"usage.{name}", getattr(usage, name), getattr(self._usage, name)) for name in tokens]
        wrong = [f"{name} is {said}, counted {counted}" for name, said, counted in pairs if said != counted]
        if not isclose(cost, recount, rel_tol=1e-9, abs_tol=1e-9):
            wrong.append(f"usage.cost_usd is {cost}, counted {recount}")
        if len(self._alternatives) > counts.fallbacks:
            wrong.append(f"tool_calls.fallbacks is {counts.fallbacks}, counted {len(self._alternatives)}")
        answered = counts.run + counts.denied + counts.invalid + counts.not_run
        if counts.proposed != answered or counts.proposed - counts.fallbacks > self._proposals:
            wrong.append(f"tool_calls do not add up: {counts.model_dump()} of {self._proposals} proposed")
        return wrong
