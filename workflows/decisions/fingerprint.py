"""What makes two calls the same: the tool and its arguments."""

from hashlib import sha256
from typing import cast

from pydantic_core import to_json

from workflows.types.messages import ToolCall

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
