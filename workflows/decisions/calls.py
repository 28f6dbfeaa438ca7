"""A call: what makes two of them the same, and the key of its effect."""

from hashlib import sha256
from typing import cast

from pydantic_core import to_json

from orga.workflows.types.messages import ToolCall

FINGERPRINT_CHARS = 16


def fingerprint(call: ToolCall) -> str:
    """Return the same text for the same tool with the same arguments, whatever the order of their keys."""
    arguments = to_json(_ordered(call.arguments), inf_nan_mode="strings")
    return sha256(call.name.encode() + b"/" + arguments).hexdigest()[:FINGERPRINT_CHARS]


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in sorted(cast("dict[str, object]", value).items())}
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in cast("list[object]", value)]
    return value


KEY_CHARS = 32


def idempotency_key(origin: str, place: str, call: ToolCall) -> str:
    """Return a key that every attempt of exactly this call shares, and no other call has.

    `origin` survives reset and continue-as-new, `place` is `<iteration>.<index>`; the arguments are in it, so that a
    run that was rewound and proposes something else at the same place does not get the old effect.
    """
    arguments = to_json(call.arguments, inf_nan_mode="strings").decode()
    identity = f"{origin}/{place}/{call.name}/{arguments}"
    return sha256(identity.encode()).hexdigest()[:KEY_CHARS]
