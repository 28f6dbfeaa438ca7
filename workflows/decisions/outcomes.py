"""What the model is told of a call that brought no result."""

from pydantic_core import to_json

from workflows.types.clipped import clip
from workflows.types.gate import Verdict
from workflows.types.messages import ToolCall
from workflows.types.outcome import FAILED, Outcome
from workflows.types.tools import ToolSpec

SHOWN_BYTES = 1_000
"""Of arguments that policy changed, in what the model is told."""

UNKNOWN = ". The outcome is unknown: it may have taken effect. Find out before you call it again."


def with_change(outcome: Outcome, verdict: Verdict) -> Outcome:
    """Return the outcome with a word on the arguments that policy put in place of the model's."""
    if verdict.arguments is None:
        return outcome
    used = to_json(verdict.arguments, inf_nan_mode="strings").decode()
    return outcome.with_words(before=f"[Arguments changed by policy] {clip(used, SHOWN_BYTES)}\n")


def refused(call: ToolCall, verdict: Verdict) -> Outcome:
    """Return the outcome of a call that the gate turned down."""
    if verdict.decision == "approval":
        return Outcome(call=call, status="not_run", text=f"[Not run] a person has to approve this: {verdict.reason}")
    if verdict.decision == "deny":
        return Outcome(call=call, status="denied", text=f"[Policy denied] {verdict.reason}")
    return Outcome(call=call, status="invalid", text=f"[Invalid call] {verdict.reason}")


def failed(call: ToolCall, error: str, *, is_unknown: bool = False) -> Outcome:
    """Return the outcome of a call whose attempts are used up."""
    outcome = Outcome(call=call, status="failed", text=f"{FAILED}{error}", error=error, may_have_acted=is_unknown)
    return outcome.with_words(after=UNKNOWN) if is_unknown else outcome


def not_run(call: ToolCall, why: str = "the run was interrupted before this call started") -> Outcome:
    """Return the outcome of a call that was never started."""
    return Outcome(call=call, status="not_run", text=f"[Not run] {why}")


def turned_away(call: ToolCall, text: str) -> Outcome:
    """Return the outcome of a call that was answered instead of being started; `text` says by what."""
    return Outcome(call=call, status="not_run", text=text)


def cancelled(call: ToolCall, spec: ToolSpec | None) -> Outcome:
    """Return the outcome of a call that an abort or the deadline cut off."""
    text = "[Cancelled] stopped before it ended"
    may_have_acted = spec is not None and spec.effect != "read_only"
    if may_have_acted:
        text += "; the outcome is unknown: it may have taken effect"
    return Outcome(call=call, status="cancelled", text=text, may_have_acted=may_have_acted)
