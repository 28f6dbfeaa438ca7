"""A delegation's tools: what the config leaves the other agent, narrowed by the policy and never widened."""

from collections.abc import Sequence

from orga.activities.ports import Judgement
from orga.workflows.types.delegation import DelegateSpec
from orga.workflows.types.messages import ToolCall


def target_of(call: ToolCall, delegates: Sequence[DelegateSpec]) -> DelegateSpec | None:
    """Return the delegate that a call names."""
    return next((delegate for delegate in delegates if delegate.agent == call.arguments.get("agent")), None)


def narrowed(target: DelegateSpec, judgement: Judgement) -> tuple[str, ...] | None:
    """Return the most that the other agent may use; None leaves it all of its own."""
    if judgement.tools is None or target.tools is None:
        return target.tools if judgement.tools is None else tuple(judgement.tools)
    return tuple(tool for tool in target.tools if tool in judgement.tools)
