"""Converts JSON values to Cedar's. Only values that a policy names are passed on; those without a form are refused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal, InvalidOperation
from typing import Any, cast

from orga.activities.adapters.policy.cedar_types import Path
from orga.workflows.types.json_text import as_object

MAX_DEPTH = 20
MAX_LONG = 2**63 - 1
MAX_DECIMAL = Decimal("922337203685477.5807")
DECIMAL_STEP = Decimal("0.0001")
RESERVED_KEYS = ("__entity", "__extn", "__expr")
"""Keys that are no data in Cedar's JSON."""


class UnrepresentableValue(ValueError):
    """Cedar has no form for a value, so a policy that names it can neither allow nor forbid."""


@dataclass(frozen=True)
class WantedValue:
    """The parts of a value that policies name."""

    parts: Mapping[str, "WantedValue"] = field(default_factory=dict[str, "WantedValue"])
    is_whole: bool = False
    """True if a policy uses the whole value. If it is False and there are no parts, policies only test if it exists."""
    is_decimal: bool = False
    """True if a policy uses it as a decimal. Without a schema, nothing else shows that 12 or "12.50" is one."""

    def attribute(self, name: str) -> "WantedValue":
        return self.parts.get(name, _NOTHING)


_NOTHING = WantedValue()


def wanted_value(types: Iterable[tuple[Path, str]]) -> WantedValue:
    """Return the parts that these paths name. A path without a type is only tested for existence."""
    below: dict[str, list[tuple[Path, str]]] = {}
    is_whole = is_decimal = False
    for path, kind in types:
        if path:
            below.setdefault(path[0], []).append((path[1:], kind))
        else:
            is_whole, is_decimal = is_whole or kind != "", is_decimal or kind == "decimal"
    return WantedValue({name: wanted_value(rests) for name, rests in below.items()}, is_whole, is_decimal)


def cedar_record(value: Mapping[str, Any], want: WantedValue, schema: Any, path: str) -> dict[str, Any]:
    """Return the wanted attributes of an object as a Cedar record. null means a missing attribute.

    Args:
        value: The object.
        want: The parts that policies name.
        schema: JSON Schema of the object, if there is one. A `number` always becomes a decimal.
        path: The object's name in errors.

    Raises:
        UnrepresentableValue: The text names the path and the reason.
    """
    given = {name: value[name] for name in want.parts if value.get(name) is not None}
    return {
        name: _wanted_part(given[name], want.attribute(name), _property_schema(schema, name), f"{path}.{name}")
        for name in given
    }


def _wanted_part(value: Any, want: WantedValue, schema: Any, path: str) -> Any:
    if not want.is_whole and not want.parts:
        return True
    if not want.is_whole and isinstance(value, dict):
        return cedar_record(cast("dict[str, Any]", value), want, schema, path)
    if schema is None and want.is_decimal and isinstance(value, (int, float, str)) and not isinstance(value, bool):
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
    """Return a Cedar decimal, which has four places. `is_rounded` rounds further places towards zero.

    Raises:
        UnrepresentableValue: It is too large, or has more places.
    """
    try:
        exact = Decimal(str(value))
        kept = exact.quantize(DECIMAL_STEP, rounding=ROUND_DOWN)
        is_held = abs(kept) <= MAX_DECIMAL and (is_rounded or kept == exact)
    except InvalidOperation:
        is_held, kept = False, DECIMAL_STEP
    if not is_held:
        raise UnrepresentableValue(f"{path} is {value!r}; decimals of Cedar have four places and end at {MAX_DECIMAL}")
    return {"__extn": {"fn": "decimal", "arg": f"{kept:f}"}}


def _cedar_number(value: float, schema: Any, path: str) -> Any:
    kinds = _schema_types(schema)
    if "number" in kinds or (isinstance(value, float) and not ("integer" in kinds and value.is_integer())):
        return cedar_decimal(value, path)
    if abs(value) > MAX_LONG:
        raise UnrepresentableValue(f"{path} is {value!r}; whole numbers of Cedar end at {MAX_LONG}")
    return int(value)


def _whole_record(value: dict[str, Any], schema: Any, path: str, depth: int) -> dict[str, Any]:
    if reserved := next((name for name in RESERVED_KEYS if name in value), None):
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
