"""Infers the types of arguments and facts from their use in policies, and writes the Cedar schema from that."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path as File
from typing import Any, cast

import cedarpy

from orga.workflows.types.json_text import as_object

Node = dict[str, Any]
Path = tuple[str, ...]

OPEN_ATTRIBUTES = {"arguments": "Arguments", "trusted": "Trusted", "values": "Values"}
"""Attributes of the context whose own attributes depend on the policies, with their types in the schema."""


def expression_path(node: Any) -> Path:
    """Return the variable and the attributes that an expression names, or () for another expression."""
    attributes: list[str] = []
    while True:
        match node:
            case {"Var": str(name)}:
                return (name, *reversed(attributes))
            case {".": {"left": left, "attr": str(attribute)}}:
                attributes.append(attribute)
                node = left
            case _:
                return ()


def is_open_path(path: Path) -> bool:
    """Return whether a path leads to arguments of a call, trusted facts of a run, or values of tools."""
    return path[:1] == ("context",) and path[1:2] != () and path[1] in OPEN_ATTRIBUTES


def operands(node: Any) -> tuple[str, list[Any]]:
    """Return an operator and its operands, in order."""
    if not isinstance(node, dict) or len(cast("Node", node)) != 1:
        return "", []
    ((operator, inner),) = cast("Node", node).items()
    if operator in {"Value", "Var", "Slot"}:
        return operator, []
    if isinstance(inner, list):
        return operator, cast("list[Any]", inner)
    fields = as_object(inner)
    if operator == "Record":
        return operator, list(fields.values())
    return operator, [fields[name] for name in ("if", "then", "else", "left", "right", "arg", "in") if name in fields]


Types = dict[Path, str]
"""Types by path below the context, `("arguments", "path")`. "" means that policies only test if it exists."""

_LONG = ("<", "<=", ">", ">=", "+", "-", "*", "neg")
_DECIMAL = ("lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
_OPERAND_TYPES = {
    **dict.fromkeys(_LONG, "Long"),
    **dict.fromkeys(_DECIMAL, "decimal"),
    **dict.fromkeys(("&&", "||", "!"), "Bool"),
    **dict.fromkeys(("like", "hasTag", "getTag"), "String"),
    "isEmpty": "Set<String>",
}
"""Operators that require the same type of every operand."""

_SUM_OPERATORS = {"+", "-", "*", "neg"}
_BOOLEAN_OPERATORS = {"==", "!=", "in", "is", "has", "contains", "containsAll", "containsAny", *_OPERAND_TYPES} - {
    *_SUM_OPERATORS,
    "getTag",
}
_KNOWN_TYPES: dict[Path, str] = {
    ("iteration",): "Long",
    ("depth",): "Long",
    ("taint",): "Set<String>",
    ("left", "cost_usd"): "decimal",
}
"""Types in the schema of the context's own attributes that arguments can be compared with."""


def inferred_types(policy: Node) -> Types:
    """Return the attributes of arguments, trusted facts and values that a policy names, with their types."""
    found: Types = {}
    for condition in policy["conditions"]:
        _collect_types(condition["body"], "Bool", found)
    return found


def record_type(types: Mapping[Path, str], root: str) -> str:
    """Return the Cedar type of one of `OPEN_ATTRIBUTES`: a record with optional attributes only."""
    return _nested_record_type({path[1:]: kind for path, kind in types.items() if path[0] == root and path[1:]})


def _nested_record_type(types: Mapping[Path, str]) -> str:
    names = dict.fromkeys(path[0] for path in types)
    return "{" + ", ".join(f"{_quoted_attribute(name)}?: {_attribute_type(types, name)}" for name in names) + "}"


def _attribute_type(types: Mapping[Path, str], name: str) -> str:
    below = {path[1:]: kind for path, kind in types.items() if path[0] == name and path[1:]}
    return _nested_record_type(below) if below else types[(name,)] or "String"


def _quoted_attribute(name: str) -> str:
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{{{ord(c):x}}}" for c in name)
    return f'"{escaped}"'


def _collect_types(node: Any, wanted: str, found: Types) -> None:
    path = expression_path(node)
    if path:
        if is_open_path(path):
            found[path[1:]] = found.get(path[1:]) or wanted or "String"
        return
    operator, inner = operands(node)
    if operator == "has" and is_open_path(named := (*expression_path(inner[0]), node["has"]["attr"])):
        found.setdefault(named[1:], "")
        return
    for part, kind in zip(inner, _operand_types(operator, inner, wanted), strict=True):
        _collect_types(part, kind, found)


def _operand_types(operator: str, inner: list[Any], wanted: str) -> list[str]:
    kinds = [_expression_type(part) for part in inner]
    match operator:
        case "==" | "!=":
            return kinds[::-1]
        case "contains":
            return [f"Set<{kinds[1] or 'String'}>", _element_type(kinds[0])]
        case "containsAll" | "containsAny":
            return [kind or "Set<String>" for kind in kinds[::-1]]
        case "if-then-else":
            return ["Bool", wanted or kinds[2], wanted or kinds[1]]
        case _:
            return [_common_type(operator, kinds)] * len(inner)


def _common_type(operator: str, kinds: list[str]) -> str:
    if operator in _LONG:  # dates and durations compare like numbers
        return next((kind for kind in kinds if kind in {"datetime", "duration"}), "Long")
    return next(filter(None, kinds), "") if operator == "Set" else _OPERAND_TYPES.get(operator, "")


def _expression_type(node: Any) -> str:
    operator, inner = operands(node)
    match operator:
        case "Value":
            return _literal_type(node["Value"])
        case "Set":
            return f"Set<{next((kind for part in inner if (kind := _expression_type(part))), 'String')}>"
        case "Record":
            parts: Node = node["Record"]
            return (
                "{"
                + ", ".join(
                    f"{_quoted_attribute(name)}: {_expression_type(part) or 'String'}" for name, part in parts.items()
                )
                + "}"
            )
        case "decimal" | "datetime" | "duration":
            return operator
        case "." | "Var":
            path = expression_path(node)
            return _KNOWN_TYPES.get(path[1:], "Long" if path[1:2] == ("left",) else "")
        case _:
            return "Long" if operator in _SUM_OPERATORS else "Bool" if operator in _BOOLEAN_OPERATORS else ""


def _literal_type(value: object) -> str:
    if isinstance(value, bool):
        return "Bool"
    return "Long" if isinstance(value, int) else "String" if isinstance(value, str) else ""


def _element_type(kind: str) -> str:
    return kind.removeprefix("Set<").removesuffix(">") if kind.startswith("Set<") else ""


SCHEMA = File(__file__).with_name("orga.cedarschema").read_text(encoding="utf-8")

_PREFIX = re.compile(r"^for policy `[^`]*`, ")
_ACTION = re.compile(r' for Action::"\w+"')
_OPTIONAL = re.compile(r"optional attribute `([^`]+)`")
_QUOTED = re.compile(r"`(?:[^`]*[.\"])?(\w+)\"?`")


def schema_problems(policy: str, types: Mapping[Path, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each misfit with the schema: a word that locates it, the problem, the remedy."""
    schema = SCHEMA
    for name, kind in OPEN_ATTRIBUTES.items():
        schema = schema.replace(f"type {kind} = {{}};", f"type {kind} = {record_type(types, name)};")
    found = cedarpy.validate_policies(policy, _parsed_schema(schema))  # pyright: ignore[reportUnknownMemberType]
    problems = sorted({_ACTION.sub("", _PREFIX.sub("", error.error)) for error in found.errors})
    for problem in problems:
        quoted = _QUOTED.search(problem)
        yield quoted[1] if quoted else "", problem, _remedy(problem)
    if not found.validation_passed and not problems:
        yield "", "it does not fit the schema", "`orga policy schema` shows what a policy can use"


@lru_cache(maxsize=256)
def _parsed_schema(schema: str) -> cedarpy.Schema:
    return cedarpy.Schema.from_str(schema)


def _remedy(problem: str) -> str:
    optional = _OPTIONAL.search(problem)
    if optional is None:
        return "`orga policy schema` shows what a policy can use"
    above, _, name = f"context.{optional[1]}".rpartition(".")
    shown = name if name.isidentifier() else json.dumps(name)
    return f"it may be missing: write `{above} has {shown} && ...` before it"
