"""Megabytes of unrequested notifications."""

import json
from typing import Any

FLOOD_BYTES = 14_000_000

Message = dict[str, Any]


def _notification(data: Any) -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}}


SMALL: list[Message] = [
    _notification("x"),
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
    {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
    {"jsonrpc": "2.0", "method": "notifications/no_such_thing", "params": {"a": []}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
]
FLOODS = ("small", "lists", "text", "objects", "middle")


def flood(kind: str, size: int = FLOOD_BYTES) -> list[str]:
    """Return this many bytes of notifications: many small ones, many of 90 kB, or one large one."""
    match kind:
        case "small":
            five = [json.dumps(message) for message in SMALL]
            return five * (size // sum(map(len, five)))
        case "lists":
            return [json.dumps(_notification("?")).replace('"?"', "[" + "[]," * (size // 3) + "0]")]
        case "text":
            return [json.dumps(_notification("x" * size))]
        case "objects":
            return [json.dumps(_notification("?")).replace('"?"', "[" + '{"a":0},' * (size // 8) + "0]")]
        case _:
            return [json.dumps(_notification("?")).replace('"?"', "[" + "[]," * 30_000 + "0]")] * (size // 90_000)
