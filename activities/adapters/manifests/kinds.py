"""The types of arguments: which keys each knows, what the model sees of it, and what makes a value good."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from orga.activities.adapters.manifests.argument import Argument
from orga.activities.adapters.manifests.network_values import cidr, hostname, ip_address, scope_target, url
from orga.activities.adapters.manifests.scalar_values import duration, finite, regex, text, whole
from orga.activities.adapters.tools.root import Root

Value = str | int | float | bool | tuple[str | int | float | bool, ...]
"""A checked value. A path is relative to where the command runs and begins with a dot."""


@dataclass(frozen=True)
class Ground:
    """What paths are checked against, and where the command runs, relative to that."""

    root: Root
    cwd: PurePosixPath = field(default_factory=PurePosixPath)


@dataclass(frozen=True)
class Kind:
    """One type."""

    schema: Callable[[Argument], dict[str, Any]]
    """JSON Schema, without what every type has."""
    read: Callable[[Any, Argument, Ground], Value]
    """Takes a value that fits the schema; raises ValueError or ToolError."""
    keys: frozenset[str]
    """What a manifest may say of it, beside what every type knows."""
    hint: str = ""
    """Told to the model behind the description."""


def _text_schema(argument: Argument, longest: int = 10_000) -> dict[str, Any]:
    least, most = argument.min, argument.max
    found: dict[str, Any] = {"type": "string", "maxLength": longest if most is None else int(most)}
    return found if least is None else {**found, "minLength": int(least)}


def _short(longest: int) -> Callable[[Argument], dict[str, Any]]:
    return lambda argument: {"type": "string", "minLength": 1, "maxLength": longest}


def _bounds(kind: str, least: float | None = None, most: float | None = None) -> Callable[[Argument], dict[str, Any]]:
    def schema(argument: Argument) -> dict[str, Any]:
        low = least if argument.min is None else argument.min
        high = most if argument.max is None else argument.max
        bounds = {"minimum": low, "maximum": high}
        return {"type": kind, **{name: value for name, value in bounds.items() if value is not None}}

    return schema


def _array_schema(argument: Argument) -> dict[str, Any]:
    items = schema_of(argument.items) if argument.items else {}
    most = 100 if argument.max is None else int(argument.max)
    least = {} if argument.min is None else {"minItems": int(argument.min)}
    return {"type": "array", "items": items, "maxItems": most, **least}


def _path(value: str, argument: Argument, ground: Ground) -> str:
    text(value, argument)
    place = ground.root.locate(value)
    if argument.must_exist and not (ground.root.path / place).exists():
        raise ValueError("there is no such file or folder")
    inside = place.is_relative_to(ground.cwd)
    return f"./{place.relative_to(ground.cwd)}" if inside else str(ground.root.path / place)


def _array(value: list[Any], argument: Argument, ground: Ground) -> Value:
    assert argument.items is not None
    found = [KINDS[argument.items.type].read(each, argument.items, ground) for each in value]
    return tuple(each for each in found if not isinstance(each, tuple))


_LIST = frozenset({"allowed", "allow_dash"})
_TEXT = frozenset({"allowed", "pattern", "allow_dash"})
_NUMBER = frozenset({"allowed", "min", "max", "allow_dash"})
_MAX_INTEGER = 2**63 - 1

KINDS: Mapping[str, Kind] = {
    "string": Kind(_text_schema, lambda v, a, g: text(v, a), _TEXT | {"min", "max", "multiline"}),
    "integer": Kind(
        _bounds("integer", -_MAX_INTEGER, _MAX_INTEGER), lambda v, a, g: whole(v), _NUMBER
    ),
    "number": Kind(_bounds("number"), lambda v, a, g: finite(v), _NUMBER),
    "boolean": Kind(lambda a: {"type": "boolean"}, lambda v, a, g: bool(v), frozenset()),
    "enum": Kind(lambda a: {"type": "string"}, lambda v, a, g: text(v, a), _LIST),
    "port": Kind(_bounds("integer", 1, 65_535), lambda v, a, g: whole(v), _NUMBER - {"allow_dash"}, "a port"),
    "url": Kind(
        _short(4_000), lambda v, a, g: url(text(v, a), a.schemes), _TEXT | {"schemes"}, "an absolute URL"
    ),
    "path": Kind(
        _short(4_000), _path, frozenset({"allowed", "pattern", "must_exist"}), "a path under the root, without `..`"
    ),
    "ip_address": Kind(_short(64), lambda v, a, g: ip_address(v), _LIST - {"allow_dash"}, "an IP address"),
    "cidr": Kind(_short(64), lambda v, a, g: cidr(v), _LIST - {"allow_dash"}, "a network, as in 10.0.0.0/8"),
    "hostname": Kind(_short(253), lambda v, a, g: hostname(v), _TEXT - {"allow_dash"}, "a host name"),
    "scope_target": Kind(
        _short(253), lambda v, a, g: scope_target(v, a.scope), frozenset({"scope"}),
        "an IP address, a network or a host name",
    ),
    "duration": Kind(_short(40), lambda v, a, g: duration(v, a), frozenset({"min", "max"}), "as in 90s, 5m or 1h30m"),
    "regex": Kind(_short(1_000), lambda v, a, g: regex(v, a), frozenset({"allow_dash"}), "a regular expression, RE2"),
    "array": Kind(_array_schema, _array, frozenset({"items", "min", "max"})),
}  # fmt: skip


def schema_of(argument: Argument) -> dict[str, Any]:
    """Return the JSON Schema of an argument, with its true JSON type."""
    kind = KINDS[argument.type]
    schema = kind.schema(argument)
    told = " ".join(part for part in (argument.description, f"({kind.hint})" if kind.hint else "") if part)
    optional = {
        "description": told or None,
        "enum": None if argument.allowed is None else list(argument.allowed),
        "pattern": None if argument.pattern is None else f"^(?:{argument.pattern})$",
        "default": argument.default,
    }
    return schema | {name: value for name, value in optional.items() if value is not None}


def parameters_of(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Return the JSON Schema of all arguments together; others are refused."""
    required = [name for name, argument in arguments.items() if argument.is_required]
    return {
        "type": "object",
        "properties": {name: schema_of(argument) for name, argument in arguments.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }
