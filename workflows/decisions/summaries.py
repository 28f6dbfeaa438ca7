"""What the Temporal UI shows beside an activity: the UI puts its type before it, so no summary repeats that.

What a model call decides stands beside the gate that is asked about it; what the gate refused, beside the next model
call. Both are known where the activity is scheduled, and cost no event. What can be seen beside it is not said again:
each has some 50 bytes, and a history no more than 1.05 times those of a loop written by hand (bench, a).
"""

from collections.abc import Iterable

from orga.workflows.decisions.result import call_argument, call_summary
from orga.workflows.types.gate import PLAN, GateRequest, Verdict
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import one_line
from orga.workflows.types.tools import ToolSpec

SHOWN_CALLS = 3
LINE_CHARS = 80


def of_call(call: ToolCall, spec: ToolSpec) -> str | None:
    """Return the main argument of a call; None where it has none."""
    return call_argument(call, spec) or None


def of_reason(state: AgentState) -> str | None:
    """Return what the gate refused before a model call, with the iteration that the call begins; None where nothing.

    Its activity id is the iteration: 46 bytes in each are what keeps histories as small as a bare loop's.
    """
    refused = state.refused
    return one_line(f"iteration {state.iteration + 1}, after a denial: {refused}", LINE_CHARS) if refused else None


def of_gate(request: GateRequest) -> str | None:
    """Return which iteration the gate is asked in, and what was decided that it judges.

    None of a reply with one call: that stands beside its tool, or was denied and stands beside the next model call.
    """
    if request.purpose == "reply" and len(request.calls) == 1:
        return None
    before = "before the first iteration" if not request.iteration else f"iteration {request.iteration}"
    return one_line(f"{before}: {_judged(request)}", LINE_CHARS)


def with_calls(state: AgentState, calls: tuple[ToolCall, ...], verdicts: Iterable[Verdict]) -> AgentState:
    """Return the state with what a reply calls, and what of it the gate refused, for people."""
    specs = state.setup.tools if state.setup else ()
    refused = [call for call, verdict in zip(calls, verdicts, strict=False) if verdict.decision in {"deny", "invalid"}]
    shown, denied = in_words(calls, specs), in_words(refused, specs)
    state = state.with_dialogue(last=shown)
    return state if denied == state.refused else state.with_dialogue(refused=denied)


def without_refused(state: AgentState) -> AgentState:
    """Return the state once the model has answered to what was refused."""
    return state.with_dialogue(refused="") if state.refused else state


def in_words(calls: Iterable[ToolCall], specs: Iterable[ToolSpec]) -> str:
    """Return the first of the calls on one line."""
    known, named = {spec.name: spec for spec in specs}, tuple(calls)
    shown = [call_summary(call, known.get(call.name)) for call in named[:SHOWN_CALLS]]
    more = [f"{len(named) - SHOWN_CALLS} more"] if len(named) > SHOWN_CALLS else []
    return "; ".join([*shown, *more])


def _judged(request: GateRequest) -> str:
    if request.answer is not None:
        return "the answer" if request.purpose == "reply" else "what was gathered"
    if PLAN in request.places:
        return f"a plan of {len(request.plan)}"
    return in_words(request.calls, request.specs)
