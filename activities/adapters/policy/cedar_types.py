"""Infers the types of arguments and facts from their use in policies, and adds them to the Cedar schema.

It also converts the JSON values that policies name to Cedar's values. A value that Cedar cannot hold is refused.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import cedarpy

from orga.workflows.types.json_text import as_object

Node = dict[str, Any]
"""An expression or a policy in Cedar's JSON form."""
AttributePath = tuple[str, ...]
"""A variable and attributes, as in `("context", "left", "tokens")`, or only the attributes below a known place."""

THIS_RUN = "this"
"""The id of the run as a resource: `Run::"this"`."""

OPEN_ATTRIBUTES = {"arguments": "Arguments", "trusted": "Trusted", "values": "Values"}
"""Attributes of the context whose own attributes depend on the policies. The values are their types in the schema."""


def expression_path(node: Any) -> AttributePath:
    """Return the variable and attributes of an expression such as `context.left.tokens`, or () for any other kind."""
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


def is_open_path(path: AttributePath) -> bool:
    """Return whether a path leads to arguments of a call, trusted facts of a run, or values of tools."""
    return len(path) > 1 and path[0] == "context" and path[1] in OPEN_ATTRIBUTES


def operands(node: Any) -> tuple[str, list[Any]]:
    """Return the operator of a node and its operands in order. A literal or a variable has no operands."""
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


def string_literals(node: Any) -> list[str]:
    """Return the string of a literal, or the strings of a set of literals."""
    match node:
        case {"Value": str(word)}:
            return [word]
        case {"Set": list(parts)}:  # pyright: ignore[reportUnknownVariableType]
            return [word for part in cast("list[Any]", parts) for word in string_literals(part)]
        case _:
            return []


Types = dict[AttributePath, str]
"""Types by path below the context, as in `("arguments", "path")`. "" means: policies only test whether it exists."""

_SUM_OPERATORS = ("+", "-", "*", "neg")
_COMPARISONS = ("<", "<=", ">", ">=")
_DECIMAL_COMPARISONS = ("lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
_OPERAND_TYPES = {
    **dict.fromkeys((*_SUM_OPERATORS, *_COMPARISONS), "Long"),
    **dict.fromkeys(_DECIMAL_COMPARISONS, "decimal"),
    **dict.fromkeys(("&&", "||", "!"), "Bool"),
    **dict.fromkeys(("like", "hasTag", "getTag"), "String"),
    "isEmpty": "Set<String>",
}
"""The type that an operator requires of each operand."""

_BOOLEAN_OPERATORS = (
    *("==", "!=", "&&", "||", "!", "in", "is", "has", "hasTag", "like"),
    *("contains", "containsAll", "containsAny", "isEmpty", *_COMPARISONS, *_DECIMAL_COMPARISONS),
)
_RESULT_TYPES = {
    **dict.fromkeys(_SUM_OPERATORS, "Long"),
    **dict.fromkeys(_BOOLEAN_OPERATORS, "Bool"),
    **{name: name for name in ("decimal", "datetime", "duration")},
}
"""The type of an operator's result."""

_KNOWN_TYPES: dict[AttributePath, str] = {
    ("iteration",): "Long",
    ("depth",): "Long",
    ("taint",): "Set<String>",
    ("left", "cost_usd"): "decimal",
}
"""The types of the context's own attributes, because arguments can be compared with them."""

_LITERAL_TYPES: dict[type, str] = {bool: "Bool", int: "Long", str: "String"}


def inferred_types(policy: Node) -> Types:
    """Return the attributes of arguments, trusted facts and values that a policy names, with their types."""
    found: Types = {}
    for condition in policy["conditions"]:
        _collect_types(condition["body"], "Bool", found)
    return found


def _record_type(types: Mapping[AttributePath, str]) -> str:
    """Return the Cedar type of a record with these attributes, all of them optional."""
    attributes: list[str] = []
    for name in dict.fromkeys(path[0] for path in types):
        below = _types_below(types, name)
        kind = _record_type(below) if below else types[(name,)] or "String"
        attributes.append(f"{_quoted_attribute(name)}?: {kind}")
    return "{" + ", ".join(attributes) + "}"


def _types_below(types: Mapping[AttributePath, str], name: str) -> Types:
    return {path[1:]: kind for path, kind in types.items() if path[0] == name and path[1:]}


def _quoted_attribute(name: str) -> str:
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{{{ord(c):x}}}" for c in name)
    return f'"{escaped}"'


def _collect_types(node: Any, wanted: str, found: Types) -> None:
    """Add the types within a node to `found`. `wanted` is the type that the expression around it requires, or ""."""
    path = expression_path(node)
    if path:
        if is_open_path(path):
            found[path[1:]] = found.get(path[1:]) or wanted or "String"
        return
    operator, inner = operands(node)
    if operator == "has":
        tested = (*expression_path(inner[0]), node["has"]["attr"])
        if is_open_path(tested):
            found.setdefault(tested[1:], "")
            return
    for part, kind in zip(inner, _operand_types(operator, inner, wanted), strict=True):
        _collect_types(part, kind, found)


def _operand_types(operator: str, inner: list[Any], wanted: str) -> list[str]:
    kinds = [_expression_type(part) for part in inner]
    match operator:
        case "==" | "!=":
            return kinds[::-1]  # each operand has the type of the other
        case "contains":
            element = kinds[0].removeprefix("Set<").removesuffix(">") if kinds[0].startswith("Set<") else ""
            return [f"Set<{kinds[1] or 'String'}>", element]
        case "containsAll" | "containsAny":
            return [kind or "Set<String>" for kind in kinds[::-1]]
        case "if-then-else":
            return ["Bool", wanted or kinds[2], wanted or kinds[1]]
        case _:
            return [_common_type(operator, kinds)] * len(inner)


def _common_type(operator: str, kinds: list[str]) -> str:
    if operator in _SUM_OPERATORS or operator in _COMPARISONS:  # these operators also compare dates and durations
        return next((kind for kind in kinds if kind in {"datetime", "duration"}), "Long")
    if operator == "Set":
        return next(filter(None, kinds), "")
    return _OPERAND_TYPES.get(operator, "")


def _expression_type(node: Any) -> str:
    operator, inner = operands(node)
    match operator:
        case "Value":
            value: object = node["Value"]
            return _LITERAL_TYPES.get(type(value), "")
        case "Set":
            return f"Set<{next((kind for part in inner if (kind := _expression_type(part))), 'String')}>"
        case "Record":
            kinds = {name: _expression_type(part) or "String" for name, part in cast("Node", node["Record"]).items()}
            return "{" + ", ".join(f"{_quoted_attribute(name)}: {kind}" for name, kind in kinds.items()) + "}"
        case "." | "Var":
            path = expression_path(node)[1:]
            is_budget = path[:1] == ("left",)
            return _KNOWN_TYPES.get(path, "Long" if is_budget else "")
        case _:
            return _RESULT_TYPES.get(operator, "")


SCHEMA = Path(__file__).with_name("orga.cedarschema").read_text(encoding="utf-8")

_PREFIX = re.compile(r"^for policy `[^`]*`, ")
_ACTION = re.compile(r' for Action::"\w+"')
_OPTIONAL = re.compile(r"optional attribute `([^`]+)`")
_QUOTED = re.compile(r"`(?:[^`]*[.\"])?(\w+)\"?`")


class Finding(NamedTuple):
    words: str
    """Words of the policy that locate the problem."""
    problem: str
    remedy: str


def schema_problems(policy: str, types: Mapping[AttributePath, str]) -> Iterator[Finding]:
    """Yield what the schema does not accept in a policy."""
    schema = SCHEMA
    for name, kind in OPEN_ATTRIBUTES.items():
        schema = schema.replace(f"type {kind} = {{}};", f"type {kind} = {_record_type(_types_below(types, name))};")
    found = cedarpy.validate_policies(policy, _parsed_schema(schema))  # pyright: ignore[reportUnknownMemberType]
    problems = sorted({_ACTION.sub("", _PREFIX.sub("", error.error)) for error in found.errors})
    for problem in problems:
        quoted = _QUOTED.search(problem)
        yield Finding(quoted[1] if quoted else "", problem, _remedy(problem))
    if not found.validation_passed and not problems:
        yield Finding("", "it does not fit the schema", "`orga policy schema` shows what a policy can use")


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


MAX_DEPTH = 20
MAX_LONG = 2**63 - 1
_MAX_DECIMAL = Decimal("922337203685477.5807")
_DECIMAL_STEP = Decimal("0.0001")
_RESERVED_KEYS = ("__entity", "__extn", "__expr")
"""Keys with a special meaning in Cedar's JSON."""


class UnrepresentableValue(ValueError):
    """Raised for a value that Cedar cannot hold. So no policy that names the value can judge the proposal."""


@dataclass(frozen=True)
class WantedValue:
    """The parts of a JSON value that policies name."""

    parts: Mapping[str, "WantedValue"] = field(default_factory=dict[str, "WantedValue"])
    is_whole: bool = False
    """True if a policy uses the whole value. If False and without parts, policies only test whether it exists."""
    is_decimal: bool = False
    """True if a policy uses it as a decimal. Without a JSON Schema, nothing else shows that "12.50" is a decimal."""

    def attribute(self, name: str) -> "WantedValue":
        return self.parts.get(name, _NOTHING)


_NOTHING = WantedValue()


def wanted_value(types: Iterable[tuple[AttributePath, str]]) -> WantedValue:
    """Return the parts that the paths name. Policies only test whether a path without a type exists."""
    below: dict[str, list[tuple[AttributePath, str]]] = {}
    is_whole = is_decimal = False
    for path, kind in types:
        if path:
            below.setdefault(path[0], []).append((path[1:], kind))
        else:
            is_whole = is_whole or kind != ""
            is_decimal = is_decimal or kind == "decimal"
    return WantedValue({name: wanted_value(rests) for name, rests in below.items()}, is_whole, is_decimal)


def cedar_record(value: Mapping[str, Any], want: WantedValue, schema: Any, path: str) -> dict[str, Any]:
    """Return the wanted attributes of an object as a Cedar record. A null counts as missing.

    A `number` of the JSON Schema becomes a decimal. Raise UnrepresentableValue with the path of the value below `path`.
    """
    given = {name: value[name] for name in want.parts if value.get(name) is not None}
    return {
        name: _wanted_part(given[name], want.attribute(name), _property_schema(schema, name), f"{path}.{name}")
        for name in given
    }


def _wanted_part(value: Any, want: WantedValue, schema: Any, path: str) -> Any:
    if not want.is_whole and not want.parts:
        return True  # policies only test whether the part exists
    if not want.is_whole and isinstance(value, dict):
        return cedar_record(cast("dict[str, Any]", value), want, schema, path)
    may_be_decimal = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if schema is None and want.is_decimal and may_be_decimal:
        return cedar_decimal(value, path)
    return cedar_value(value, schema, path)


def cedar_value(value: Any, schema: Any = None, path: str = "value", depth: int = 0) -> Any:
    """Return a value in Cedar's JSON. Raise UnrepresentableValue with the path and the reason."""
    if depth > MAX_DEPTH:
        raise UnrepresentableValue(f"{path} is nested deeper than {MAX_DEPTH}")
    match value:
        case bool() | str():
            return value
        case int() | float():
            return _cedar_number(value, schema, path)
        case list():
            items = cast("list[Any]", value)
            return [cedar_value(item, as_object(schema).get("items"), f"{path}[]", depth + 1) for item in items]
        case dict():
            return _whole_record(cast("dict[str, Any]", value), schema, path, depth)
        case _:
            raise UnrepresentableValue(f"{path} holds {value!r}, which Cedar has no form for")


def cedar_decimal(value: float | str, path: str, *, is_rounded: bool = False) -> dict[str, Any]:
    """Return a decimal of four places. Raise UnrepresentableValue if it is too large or too exact (unless rounded)."""
    kept = _four_places(value, is_rounded=is_rounded)
    if kept is None or abs(kept) > _MAX_DECIMAL:
        raise UnrepresentableValue(f"{path} is {value!r}; decimals of Cedar have four places and end at {_MAX_DECIMAL}")
    return {"__extn": {"fn": "decimal", "arg": f"{kept:f}"}}


def _four_places(value: float | str, *, is_rounded: bool) -> Decimal | None:
    """Return the number with four places, or None if it is no finite number, is too long, or has more places."""
    try:
        exact = Decimal(str(value))
        kept = exact.quantize(_DECIMAL_STEP, rounding=ROUND_DOWN)
    except InvalidOperation:
        return None
    return kept if kept.is_finite() and (is_rounded or kept == exact) else None


def _cedar_number(value: float, schema: Any, path: str) -> Any:
    kinds = _schema_types(schema)
    is_whole = isinstance(value, int) or ("integer" in kinds and value.is_integer())
    if "number" in kinds or not is_whole:
        return cedar_decimal(value, path)
    if abs(value) > MAX_LONG:
        raise UnrepresentableValue(f"{path} is {value!r}; whole numbers of Cedar end at {MAX_LONG}")
    return int(value)


def _whole_record(value: dict[str, Any], schema: Any, path: str, depth: int) -> dict[str, Any]:
    if reserved := next((name for name in _RESERVED_KEYS if name in value), None):
        raise UnrepresentableValue(f"{path} has the key {reserved!r}, which means something else to Cedar")
    return {
        name: cedar_value(part, _property_schema(schema, name), f"{path}.{name}", depth + 1)
        for name, part in value.items()
        if part is not None
    }


def _property_schema(schema: Any, name: str) -> Any:
    return as_object(as_object(schema).get("properties")).get(name)


def _schema_types(schema: Any) -> tuple[Any, ...]:
    kinds: Any = as_object(schema).get("type")
    return tuple(cast("list[Any]", kinds)) if isinstance(kinds, list) else (kinds,)
