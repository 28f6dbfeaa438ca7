"""What a finish reason of a chat completion says: servers write many, and some of a reply that they broke off."""

from typing import Literal

from orga.workflows.types.messages import FinishReason

Ending = FinishReason | Literal["failed", "broken_off", "unknown"]

_ENDINGS: dict[str, Ending] = {
    "stop": "stop",
    "end": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "completed": "stop",
    "tool_call": "stop",
    "tool_calls": "stop",
    "tool_use": "stop",
    "function_call": "stop",
    "length": "length",
    "max_length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "repetition": "length",
    "blocklist": "content_filter",
    "content_filter": "content_filter",
    "function_call_filter": "content_filter",
    "prohibited_content": "content_filter",
    "recitation": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "spii": "content_filter",
    "refusal": "refusal",
    "error": "failed",
    "abort": "broken_off",
    "aborted": "broken_off",
    "canceled": "broken_off",
    "cancelled": "broken_off",
    "insufficient_system_resource": "broken_off",
    "network_error": "broken_off",
}


def ending(reason: str) -> Ending:
    """Return what `reason` stands for; Gemini writes one with its detail, `function_call_filter: DETAIL`."""
    return _ENDINGS.get(reason.partition(":")[0].strip().lower(), "unknown")
