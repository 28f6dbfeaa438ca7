"""What a policy takes arguments and trusted facts for: their types, read from how it uses them."""

from collections.abc import Mapping
from typing import Any

from orga.activities.adapters.policy.cedar_paths import Node, Path, is_open, operands, path_of

Types = dict[Path, str]
"""By path below the context, `("arguments", "path")`; the empty text where a policy only asks whether it is there."""

_LONG = ("<", "<=", ">", ">=", "+", "-", "*", "neg")
_DECIMAL = ("lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
_ALIKE = {
    **dict.fromkeys(_LONG, "Long"),
    **dict.fromkeys(_DECIMAL, "decimal"),
    **dict.fromkeys(("&&", "||", "!"), "Bool"),
    **dict.fromkeys(("like", "hasTag", "getTag"), "String"),
    "isEmpty": "Set<String>",
}
"""Operators that ask the same of every operand."""

_SUMS = {"+", "-", "*", "neg"}
_TRUTHS = {"==", "!=", "in", "is", "has", "contains", "containsAll", "containsAny", *_ALIKE} - {*_SUMS, "getTag"}
_FIXED: dict[Path, str] = {
    ("iteration",): "Long",
    ("depth",): "Long",
    ("taint",): "Set<String>",
    ("left", "cost_usd"): "decimal",
}
"""What the schema says of the context's own attributes, as far as arguments are compared with them."""


def types_of(policy: Node) -> Types:
    """Return every attribute of arguments and trusted facts that a policy names, with its type."""
    found: Types = {}
    for condition in policy["conditions"]:
        _walk(condition["body"], "Bool", found)
    return found


def declared(types: Mapping[Path, str], root: str) -> str:
    """Return the Cedar type of `arguments` or `trusted`: a record whose attributes are all optional."""
    return _record({path[1:]: kind for path, kind in types.items() if path[0] == root and path[1:]})


def _record(types: Mapping[Path, str]) -> str:
    names = dict.fromkeys(path[0] for path in types)
    return "{" + ", ".join(f"{_quoted(name)}?: {_attribute(types, name)}" for name in names) + "}"


def _attribute(types: Mapping[Path, str], name: str) -> str:
    below = {path[1:]: kind for path, kind in types.items() if path[0] == name and path[1:]}
    return _record(below) if below else types[(name,)] or "String"


def _quoted(name: str) -> str:
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{{{ord(c):x}}}" for c in name)
    return f'"{escaped}"'


def _walk(node: Any, wanted: str, found: Types) -> None:
    path = path_of(node)
    if path:
        if is_open(path):
            found[path[1:]] = found.get(path[1:]) or wanted or "String"
        return
    operator, inner = operands(node)
    if operator == "has" and is_open(named := (*path_of(inner[0]), node["has"]["attr"])):
        found.setdefault(named[1:], "")
        return
    for part, kind in zip(inner, _wanted(operator, inner, wanted), strict=True):
        _walk(part, kind, found)


def _wanted(operator: str, inner: list[Any], wanted: str) -> list[str]:
    """Return the types that an operator asks of its operands."""
    kinds = [_type(part) for part in inner]
    match operator:
        case "==" | "!=":
            return kinds[::-1]
        case "contains":
            return [f"Set<{kinds[1] or 'String'}>", _element(kinds[0])]
        case "containsAll" | "containsAny":
            return [kind or "Set<String>" for kind in kinds[::-1]]
        case "if-then-else":
            return ["Bool", wanted or kinds[2], wanted or kinds[1]]
        case _:
            return [_of_all(operator, kinds)] * len(inner)


def _of_all(operator: str, kinds: list[str]) -> str:
    if operator in _LONG:  # dates and durations compare like numbers
        return next((kind for kind in kinds if kind in {"datetime", "duration"}), "Long")
    return next(filter(None, kinds), "") if operator == "Set" else _ALIKE.get(operator, "")


def _type(node: Any) -> str:
    """Return the type of an expression, where it stands by itself."""
    operator, inner = operands(node)
    match operator:
        case "Value":
            return _type_of_literal(node["Value"])
        case "Set":
            return f"Set<{next((kind for part in inner if (kind := _type(part))), 'String')}>"
        case "Record":
            parts: Node = node["Record"]
            return "{" + ", ".join(f"{_quoted(name)}: {_type(part) or 'String'}" for name, part in parts.items()) + "}"
        case "decimal" | "datetime" | "duration":
            return operator
        case "." | "Var":
            path = path_of(node)
            return _FIXED.get(path[1:], "Long" if path[1:2] == ("left",) else "")
        case _:
            return "Long" if operator in _SUMS else "Bool" if operator in _TRUTHS else ""


def _type_of_literal(value: object) -> str:
    if isinstance(value, bool):
        return "Bool"
    return "Long" if isinstance(value, int) else "String" if isinstance(value, str) else ""


def _element(kind: str) -> str:
    return kind.removeprefix("Set<").removesuffix(">") if kind.startswith("Set<") else ""
