"""The types of a manifest's arguments: the keys that each allows, its JSON Schema, and its check of a call's values."""

import ipaddress
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import urlsplit

from orga.activities.adapters.http import URL, InvalidURL, has_dot_segments
from orga.activities.adapters.manifests.manifest import Argument
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ToolError
from orga.workflows.types.text import LinearPattern

_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_PORT_NUMBER = re.compile(r"\d+|0[xX][0-9a-fA-F]*")
_ILLEGAL_IN_HOST = re.compile(r"[^\x21-\x7e]|[%\\]")


def checked_ip_address(value: str) -> str:
    """Return an IPv4 or IPv6 address. Refuse leading zeros and zones."""
    if "%" in value:
        raise ValueError("an address with a zone is refused")
    return str(_parse_or_refuse(ipaddress.ip_address, value, "is no IP address; write 192.0.2.1 or 2001:db8::1"))


def checked_cidr(value: str) -> str:
    """Return a network. Refuse one whose host bits are not 0."""
    if "/" not in value or "%" in value:
        raise ValueError("is no network; write 10.0.0.0/8")
    return str(_parse_or_refuse(ipaddress.ip_network, value, "is no network whose host bits are 0; write 10.0.0.0/8"))


def checked_hostname(value: str) -> str:
    """Return an ASCII host name in lower case. Refuse wildcards, and names that a resolver would read as a number."""
    labels = value.split(".")
    if not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is no host name; write it as in www.example.org, letters beyond ASCII as xn--")
    if _PORT_NUMBER.fullmatch(labels[-1]):
        raise ValueError("is a number, no host name")
    return value.lower()


def checked_scope_target(value: str, scope: Iterable[str]) -> str:
    """Return an address, a network or a host name. Unless `scope` is empty, refuse one that is not within the scope."""
    target = _checked_target(value)
    allowed = tuple(scope)
    if allowed and not any(_is_within(target, each) for each in allowed):
        raise ValueError(f"is out of scope; in scope: {', '.join(allowed)}")
    return target


def checked_scope_entry(entry: str) -> str:
    """Return an entry of a scope, without the `*.` of a wildcard. Raise ValueError if it is no network or host."""
    return _checked_target(entry.removeprefix("*."))


def normalised_url(value: str, schemes: Iterable[str] = ()) -> str:
    """Return an absolute URL in its normal spelling, so that the URL that is checked is also the one that is used."""
    allowed = tuple(schemes) or ("http", "https")
    try:
        netloc, parsed = urlsplit(value).netloc, URL(value)
    except (ValueError, InvalidURL) as error:
        raise ValueError(f"is no URL: {error}") from None
    if parsed.scheme not in allowed:
        raise ValueError(f"its scheme is {parsed.scheme or 'missing'}; write one with {' or '.join(allowed)}")
    if parsed.userinfo or "@" in netloc:
        raise ValueError("credentials in a URL are refused; leave out user and password")
    if not parsed.host or _ILLEGAL_IN_HOST.search(netloc) or "\\" in value:
        raise ValueError("has no host, or an encoded one; write it as in https://www.example.org/")
    if has_dot_segments(value):
        raise ValueError("its path has `.` or `..`; write the one it leads to")
    return str(parsed)


def _checked_target(value: str) -> str:
    for read in (checked_ip_address, checked_cidr, checked_hostname):
        try:
            return read(value)
        except ValueError:
            continue
    raise ValueError("is no IP address, network or host name; wildcards are refused")


def _is_within(target: str, entry: str) -> bool:
    name = checked_scope_entry(entry)
    network, wanted = _parsed_network(name), _parsed_network(target)
    if network is None and wanted is None:
        return target.endswith(f".{name}") if entry.startswith("*.") else target == name
    if network is None or wanted is None:
        return False
    return isinstance(wanted, type(network)) and wanted.subnet_of(network)  # pyright: ignore[reportArgumentType]


def _parsed_network(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        return None


def _parse_or_refuse(read: Callable[[str], object], value: str, problem: str) -> object:
    try:
        return read(value)
    except ValueError:
        raise ValueError(problem) from None


_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
_LINE_CHARACTERS = "\n\t"
_LINE_SEPARATORS = "\u2028\u2029"


def checked_text(value: str, argument: Argument) -> str:
    """Return the text. Refuse control characters, except line breaks and tabs if the manifest allows them."""
    allowed = _LINE_CHARACTERS + _LINE_SEPARATORS if argument.multiline else ""
    for character in value:
        is_control = unicodedata.category(character) in {"Cc", "Cs"} or character in _LINE_SEPARATORS
        if is_control and character not in allowed:
            raise ValueError(f"the character U+{ord(character):04X} is refused; leave it out")
    return value


def checked_number(value: float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is no number")
    return value


def checked_duration(value: str, argument: Argument) -> int:
    """Return the duration in seconds."""
    found = _DURATION.fullmatch(value)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = hours * 3_600 + minutes * 60 + seconds
    if total <= 0:
        raise ValueError("is no duration; write 90s, 5m or 1h30m")
    if argument.min is not None and total < argument.min:
        raise ValueError(f"is shorter than {argument.min:g} s")
    if argument.max is not None and total > argument.max:
        raise ValueError(f"is longer than {argument.max:g} s")
    return total


def checked_regex(value: str, argument: Argument) -> str:
    """Return the pattern. Refuse one that cannot be matched in linear time."""
    LinearPattern(checked_text(value, argument))
    return value


def is_like_flag(value: str) -> bool:
    """Return whether a program could take the value for a flag, because its first visible character is like a dash.

    A program may normalise its arguments, and some systems map U+00AD or U+2212 to a dash (CVE-2024-4577). So every
    character that becomes a dash counts, and blanks, invisible characters and marks before it are ignored.
    """
    for character in value:
        kind, folded = unicodedata.category(character), unicodedata.normalize("NFKC", character)
        if kind == "Pd" or character in "\u00ad\u2212\u02d7\u2043" or folded[:1] == "-":
            return True
        if not (character.isspace() or kind in {"Cf", "Cc", "Mn", "Me"}):
            return False
    return False


SingleValue = str | int | float | bool
Value = SingleValue | tuple[SingleValue, ...]
"""A checked value. A path is relative to the command's folder and begins with a dot, or absolute if outside of it."""


@dataclass(frozen=True)
class PathContext:
    root: FileRoot
    cwd: PurePosixPath = field(default_factory=PurePosixPath)


SchemaOfArgument = Callable[[Argument], dict[str, Any]]
ReadValue = Callable[[Any, Argument, PathContext], Value]


@dataclass(frozen=True)
class TypeRules:
    schema: SchemaOfArgument
    """Returns the part of the JSON Schema that only this type has."""
    read: ReadValue
    """Checks a value that fits the schema. Raises ValueError or ToolError."""
    keys: frozenset[str]
    """The keys that this type allows in a manifest, in addition to those of every type."""
    hint: str = ""
    """A hint for the model, added to the description."""


def _text_schema(argument: Argument) -> dict[str, Any]:
    most = 10_000 if argument.max is None else int(argument.max)
    least = {} if argument.min is None else {"minLength": int(argument.min)}
    return {"type": "string", "maxLength": most, **least}


def _short_text_schema(longest: int) -> SchemaOfArgument:
    return lambda argument: {"type": "string", "minLength": 1, "maxLength": longest}


def _number_schema(kind: str, least: float | None = None, most: float | None = None) -> SchemaOfArgument:
    def schema(argument: Argument) -> dict[str, Any]:
        low = least if argument.min is None else argument.min
        high = most if argument.max is None else argument.max
        bounds = {"minimum": low, "maximum": high}
        return {"type": kind, **{name: value for name, value in bounds.items() if value is not None}}

    return schema


def _array_schema(argument: Argument) -> dict[str, Any]:
    items = argument_schema(argument.items) if argument.items else {}
    most = 100 if argument.max is None else int(argument.max)
    least = {} if argument.min is None else {"minItems": int(argument.min)}
    return {"type": "array", "items": items, "maxItems": most, **least}


def _checked_url(value: str, argument: Argument) -> str:
    return normalised_url(checked_text(value, argument), argument.schemes)


def _checked_path(value: str, argument: Argument, paths: PathContext) -> str:
    checked_text(value, argument)
    located = paths.root.locate(value)
    if argument.must_exist and not (paths.root.path / located).exists():
        raise ValueError("there is no such file or folder")
    if located.is_relative_to(paths.cwd):
        return f"./{located.relative_to(paths.cwd)}"
    return str(paths.root.path / located)


def _checked_array(value: list[Any], argument: Argument, paths: PathContext) -> Value:
    assert argument.items is not None
    read = RULES_OF_TYPE[argument.items.type].read
    return tuple(cast("SingleValue", read(each, argument.items, paths)) for each in value)  # arrays are not nested


def _by_value(check: Callable[[Any], Value]) -> ReadValue:
    return lambda value, argument, paths: check(value)


def _by_argument(check: Callable[[Any, Argument], Value]) -> ReadValue:
    return lambda value, argument, paths: check(value, argument)


_TEXT_KEYS = frozenset({"allowed", "pattern", "allow_dash"})
_NUMBER_KEYS = frozenset({"allowed", "min", "max", "allow_dash"})
_MAX_INTEGER = 2**63 - 1

RULES_OF_TYPE: Mapping[str, TypeRules] = {
    "string": TypeRules(_text_schema, _by_argument(checked_text), _TEXT_KEYS | {"min", "max", "multiline"}),
    # `int`, because the JSON value 2.0 is a valid integer too
    "integer": TypeRules(_number_schema("integer", -_MAX_INTEGER, _MAX_INTEGER), _by_value(int), _NUMBER_KEYS),
    "number": TypeRules(_number_schema("number"), _by_value(checked_number), _NUMBER_KEYS),
    "boolean": TypeRules(lambda argument: {"type": "boolean"}, _by_value(bool), frozenset()),
    "enum": TypeRules(
        lambda argument: {"type": "string"}, _by_argument(checked_text), frozenset({"allowed", "allow_dash"})
    ),
    "port": TypeRules(
        _number_schema("integer", 1, 65_535), _by_value(int), frozenset({"allowed", "min", "max"}), "a port"
    ),
    "url": TypeRules(
        _short_text_schema(4_000), _by_argument(_checked_url), _TEXT_KEYS | {"schemes"}, "an absolute URL"
    ),
    "path": TypeRules(
        _short_text_schema(4_000),
        _checked_path,
        frozenset({"allowed", "pattern", "must_exist"}),
        "a path under the root, without `..`",
    ),
    "ip_address": TypeRules(
        _short_text_schema(64), _by_value(checked_ip_address), frozenset({"allowed"}), "an IP address"
    ),
    "cidr": TypeRules(
        _short_text_schema(64), _by_value(checked_cidr), frozenset({"allowed"}), "a network, as in 10.0.0.0/8"
    ),
    "hostname": TypeRules(
        _short_text_schema(253), _by_value(checked_hostname), frozenset({"allowed", "pattern"}), "a host name"
    ),
    "scope_target": TypeRules(
        _short_text_schema(253),
        lambda value, argument, paths: checked_scope_target(value, argument.scope),
        frozenset({"scope"}),
        "an IP address, a network or a host name",
    ),
    "duration": TypeRules(
        _short_text_schema(40), _by_argument(checked_duration), frozenset({"min", "max"}), "as in 90s, 5m or 1h30m"
    ),
    "regex": TypeRules(
        _short_text_schema(1_000),
        _by_argument(checked_regex),
        frozenset({"allow_dash"}),
        "a regular expression, RE2",
    ),
    "array": TypeRules(_array_schema, _checked_array, frozenset({"items", "min", "max"})),
}


def argument_schema(argument: Argument) -> dict[str, Any]:
    """Return the JSON Schema of an argument. Its `type` is that of JSON, such as `string` for a URL."""
    rules = RULES_OF_TYPE[argument.type]
    schema = rules.schema(argument)
    description = " ".join(filter(None, (argument.description, f"({rules.hint})" if rules.hint else "")))
    optional = {
        "description": description or None,
        "enum": None if argument.allowed is None else list(argument.allowed),
        "pattern": None if argument.pattern is None else f"^(?:{argument.pattern})$",
        "default": argument.default,
    }
    return schema | {name: value for name, value in optional.items() if value is not None}


def parameters_schema(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Return the JSON Schema of a call's arguments. It refuses arguments that are not declared."""
    required = [name for name, argument in arguments.items() if argument.is_required]
    return {
        "type": "object",
        "properties": {name: argument_schema(argument) for name, argument in arguments.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


Values = Mapping[str, Value]
"""Checked values by name of their argument. An optional argument that was not given is missing."""


def checked_values(given: Mapping[str, Any], declared: Mapping[str, Argument], paths: PathContext) -> Values:
    """Return checked values, with defaults. Raise ToolError (InvalidArguments with all problems, or PathRefused)."""
    defaults = {name: argument.default for name, argument in declared.items() if argument.default is not None}
    all_given = {**defaults, **given}
    problems = argument_errors(parameters_schema(declared), all_given)
    if problems:
        raise invalid_argument_error("; ".join(problems))
    values: dict[str, Value] = {}
    for name, value in all_given.items():
        try:
            values[name] = RULES_OF_TYPE[declared[name].type].read(value, declared[name], paths)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise invalid_argument_error("; ".join(problems))
    return values


def value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def value_texts(value: Value | None) -> list[str]:
    """Return the text of each item of a list, the text of a single value, or no text for a missing value."""
    if value is None:
        return []
    return [value_text(each) for each in value] if isinstance(value, tuple) else [value_text(value)]


def invalid_argument_error(problem: str) -> ToolError:
    return ToolError(f"invalid arguments: {problem}", kind="InvalidArguments")
