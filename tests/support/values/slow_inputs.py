"""Inputs that used to block a worker for minutes: schemas with one value each, and texts to repeat."""

import json
from typing import Any


def chained(keyword: str, levels: int, leaf: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which each definition names the next one twice."""
    names = [f"d{n}" for n in range(levels)]
    pairs = {name: {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n, name in enumerate(names)}
    return {"$ref": "#/$defs/d0", "$defs": {**pairs, f"d{levels}": leaf}}


def nested(levels: int) -> dict[str, Any]:
    """Return a value of the same depth."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


TWICE = {"anyOf": [{"$ref": "#/$defs/n"}] * 2}
ITSELF = {"$ref": "#/$defs/n", "$defs": {"n": {"required": ["x"], "properties": {"x": TWICE}}}}
ANCHORED = {"anyOf": [{"$dynamicRef": "#a"}] * 2}
NOTS = {f"d{n}": {"not": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(5_000)}
HELD = {
    "anyOf of anyOf, by references": (chained("anyOf", 40, {"type": "string"}), 3),
    "few enough to be compiled": (chained("anyOf", 15, {"type": "string"}), 3),
    "oneOf": (chained("oneOf", 40, {"type": "string"}), 3),
    "allOf": (chained("allOf", 40, {"type": "string"}), 3),
    "a schema in itself twice": (ITSELF, nested(40)),
    "by properties": (chained("anyOf", 40, {}) | {"properties": {"a": {"$ref": "#/$defs/d0"}}}, {"a": 1}),
    "a long list of choices": ({"items": {"anyOf": [{"anyOf": [{"type": "string"}] * 5}] * 5}}, [1] * 40_000),
    "choices of lists": ({"anyOf": [{"items": {"type": "string"}}] * 40}, [1] * 40_000),
    "by an anchor": (
        {"$dynamicAnchor": "a", "anyOf": [{"type": "string"}, {"properties": {"x": ANCHORED}, "required": ["x"]}]},
        nested(40),
    ),
    "deep": (json.loads('{"not":' * 300 + "{}" + "}" * 300), 3),
    "deep by references": ({"$ref": "#/$defs/d0", "$defs": NOTS | {"d5000": {}}}, 3),
}  # fmt: skip

TEXTS = [
    "\n", "\r", "\x1b]", "\x1b[", "\x1bP", "\x90", "\x90a", "\x9b0", "<", "<!--", "<a ", '<a href="',
    "<div hidden>", "</div>",
    "\u200b", "\u200d", "😀\ufe0f", "\u0627\u200e", "\u0316\u0301", "a.b.", "ignore ", "ignore previous instructions\n",
    "[abcdef", "![", "decode ", "\u180b", "\ufdfa", "{", ".a{display:none}", "<style>", "&#", "\u1100\u115f",
]  # fmt: skip
