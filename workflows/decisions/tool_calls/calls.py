"""Calls: their identity, the idempotency keys of their effects, and the outcomes of calls without a result.

This module also tracks taint: untrusted content in a conversation. Policies can be stricter after there is any.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import cast

from pydantic_core import to_json

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.models.usage import ToolCallCounts
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip, one_line, to_json_text
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import ERROR_MARKER, Outcome
from orga.workflows.types.tool_calls.tools import ToolSpec

FINGERPRINT_CHARS = 16


def call_fingerprint(call: ToolCall) -> str:
    """Return the same text for the same tool with the same arguments, whatever the order of their keys."""
    arguments = to_json(_with_sorted_keys(call.arguments), inf_nan_mode="strings")
    return sha256(call.name.encode() + b"/" + arguments).hexdigest()[:FINGERPRINT_CHARS]


def _with_sorted_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_sorted_keys(item) for key, item in sorted(cast("dict[str, object]", value).items())}
    if isinstance(value, (list, tuple)):
        return [_with_sorted_keys(item) for item in cast("list[object]", value)]
    return value


KEY_CHARS = 32


def idempotency_key(origin: str, activity_id: str, call: ToolCall) -> str:
    """Return a key that all attempts of exactly this call share, and no other call has.

    `origin` survives reset and continue-as-new, and `activity_id` is `<iteration>.<index>`. The key covers the
    arguments, so that a rewound run with another proposal under the same id does not get the old effect.
    """
    identity = f"{origin}/{activity_id}/{call.name}/{to_json_text(call.arguments)}"
    return sha256(identity.encode()).hexdigest()[:KEY_CHARS]


SHOWN_BYTES = 1_000

_UNKNOWN_OUTCOME = ". The outcome is unknown: it may have taken effect."
_UNREADABLE_OUTCOME = ". It took effect, its answer can't be read."

UNKNOWN_OUTCOME_TEXT = f"{_UNKNOWN_OUTCOME} Do not call it again before you have found out that it did not."
TOOK_EFFECT_TEXT = f"{_UNREADABLE_OUTCOME} Do not call it again."


def effect_text(*, took_effect: bool) -> str:
    """Return the text, for people, that follows a failed call's error and reports whether the call took effect."""
    return _UNREADABLE_OUTCOME if took_effect else _UNKNOWN_OUTCOME


def with_counted_calls(counts: ToolCallCounts, outcomes: Sequence[Outcome]) -> ToolCallCounts:
    by_status = Counter(outcome.status for outcome in outcomes)
    return counts.plus(
        proposed=len(outcomes),
        run=sum(outcome.was_run for outcome in outcomes),
        denied=by_status["denied"],
        invalid=by_status["invalid"],
        not_run=by_status["not_run"],
        failed=by_status["failed"] + by_status["cancelled"],
    )


def with_argument_change(outcome: Outcome, verdict: Verdict) -> Outcome:
    """Return the outcome. If the verdict changed the arguments, the text begins with the new ones and who made them."""
    if verdict.arguments is None:
        return outcome
    used = clip(to_json_text(verdict.arguments), SHOWN_BYTES)
    by = one_line(verdict.changed_by) or "policy"
    return outcome.with_own_text(before=f"[Arguments changed by {by}] {used}\n")


def refused_outcome(call: ToolCall, verdict: Verdict) -> Outcome:
    if verdict.decision == "approval":
        return Outcome(call=call, status="not_run", text=f"[Not run] a person has to approve this: {verdict.reason}")
    if verdict.decision == "deny":
        return Outcome(call=call, status="denied", text=f"[Policy denied] {verdict.reason}")
    return Outcome(call=call, status="invalid", text=f"[Invalid call] {verdict.reason}")


def failed_outcome(call: ToolCall, error: str, *, is_unknown: bool = False, took_effect: bool = False) -> Outcome:
    outcome = Outcome(call=call, status="failed", text=f"{ERROR_MARKER}{error}", error=error, may_have_acted=is_unknown)
    if not is_unknown:
        return outcome
    return outcome.with_own_text(after=TOOK_EFFECT_TEXT if took_effect else UNKNOWN_OUTCOME_TEXT)


def not_run_outcome(call: ToolCall, why: str = "the run was interrupted before this call started") -> Outcome:
    return Outcome(call=call, status="not_run", text=f"[Not run] {why}")


def answered_unrun_outcome(call: ToolCall, text: str) -> Outcome:
    """Return the outcome of a call that was answered with `text` instead of being started."""
    return Outcome(call=call, status="not_run", text=text)


def cancelled_outcome(call: ToolCall, spec: ToolSpec | None) -> Outcome:
    text = "[Cancelled] stopped before it ended"
    if spec is None or spec.effect == "read_only":
        return Outcome(call=call, status="cancelled", text=text)
    text += "; the outcome is unknown: it may have taken effect"
    goes_on = spec.options.isolation == "thread"
    return Outcome(call=call, status="cancelled", text=text, may_have_acted=True, goes_on=goes_on)


def taint_with_outcomes(state: AgentState, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the run's taint including these outcomes. Trusted tools leave no taint."""
    trusted = {spec.name for spec in state.tools if spec.options.trusted_output}
    with_text = [outcome for outcome in outcomes if outcome.status in {"ok", "failed"}]
    authors = [tool for outcome in with_text for tool in (outcome.call.name, outcome.by)]
    untrusted = [tool for tool in authors if tool and tool not in trusted]
    return tuple(dict.fromkeys((*state.taint, *untrusted)))
