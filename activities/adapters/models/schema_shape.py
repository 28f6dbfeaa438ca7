"""Reshapes JSON Schemas to what providers accept, and shows if a provider can enforce a schema as it is.

Anybody can write the schema of a tool, and providers refuse many keywords and names. The arguments are always checked
against the tool's own schema.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, cast

from orga.workflows.types.json_text import as_object, as_objects, as_text, inner_values
from orga.workflows.types.tool_calls.tools import object_schema

_REFUSED_AT_ROOT = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "if"})
"""Keywords that OpenAI, Anthropic or both refuse at the top, even together with `type: object`."""

_STRICT_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"}
    | {"$ref", "$defs", "title", "description"}
)
"""Keywords that OpenAI's strict mode accepts for all its models."""

_SCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value is an object of schemas by name."""

_SCHEMA_KEYWORDS = frozenset(
    {"allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalProperties", "contains", "not", "if", "then", "else"}
    | {"propertyNames", "unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords whose value is a schema or a list of them."""

_SAME_VALUE_KEYWORDS = ("allOf", "anyOf", "oneOf", "then", "else")
"""Keywords whose schemas are about the same value as the schema that has them."""
_MAX_PARTS = 200
"""The most schemas that are read for one value."""

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of properties that Anthropic accepts."""

_MAX_PLAIN_PARTS, _MAX_PLAIN_DEPTH = 500, 8
"""Parts and levels of a plain schema. A schema that refers to itself would have no end."""

_PLAIN_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean"})

_MAX_PLAIN_VALUES = 200
"""Values of one plain enum. A longer enum is left out, because providers limit its length, too."""

MAX_PLAIN_CHARS = 1_000
"""Characters of a description. OpenAI accepts 1,024."""

DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose value is no schema."""


def fits_as_root(schema: dict[str, Any]) -> bool:
    """Return whether providers accept the top of the schema unchanged."""
    return schema.get("type") == "object" and not _REFUSED_AT_ROOT & schema.keys()


def as_wrapped_root(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the schema. If it cannot be a root, return an object with the schema as its only property."""
    if fits_as_root(schema):
        return schema
    inner = with_moved_references(schema, f"#/properties/{name}")
    return object_schema({name: inner})


def with_moved_references(schema: Any, pointer: str) -> Any:
    """Return the schema with references that still work if it is put at `pointer` in another schema."""
    if isinstance(schema, list):
        return [with_moved_references(item, pointer) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "$ref" and isinstance(value, str):
            is_internal = value == "#" or value.startswith("#/")
            moved[key] = pointer + value[1:] if is_internal else value
        else:
            moved[key] = value if key in DATA_KEYWORDS else with_moved_references(value, pointer)
    return moved


def is_strict(schema: object) -> bool:
    """Return whether OpenAI's strict mode accepts a schema: closed objects, all properties required, known keywords."""
    known = as_object(schema)
    if not known.keys() <= _STRICT_KEYWORDS or not known.keys() & {"type", "anyOf", "$ref"}:
        return False
    kinds, properties = _schema_types(known), as_object(known.get("properties"))
    is_closed = known.get("additionalProperties") is False and {*_texts(known.get("required"))} == properties.keys()
    inner = [*properties.values(), *as_object(known.get("$defs")).values(), *as_objects(known.get("anyOf"))]
    inner += [known.get("items")] if "array" in kinds else []
    return (is_closed or "object" not in kinds) and all(map(is_strict, inner))


def as_arguments_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments without keywords at its top that providers refuse there.

    The properties of alternatives and references become properties of one object. Those that every alternative requires
    stay required.
    """
    if fits_as_root({"type": "object", **schema}):
        return schema
    schemas = _properties([schema], schema)
    properties = {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in schemas.items()}
    rest = {key: value for key, value in schema.items() if key not in _REFUSED_AT_ROOT}
    return rest | {"type": "object", "properties": properties} | _required_field([schema], schema, properties)


def portable_names(schema: dict[str, Any]) -> dict[str, str]:
    """Return new names for properties whose own names some provider refuses: `$filter`, `page[size]`."""
    names: set[str] = set()

    def collect_names(each: dict[str, Any]) -> dict[str, Any]:
        names.update(as_object(each.get("properties")))
        return each

    _with_changed_schemas(schema, collect_names)
    new_names: dict[str, str] = {}
    for name in sorted(name for name in names if not _KEY.fullmatch(name)):
        legal = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name).strip("_")[:60] or "value"  # of 64, so that a number fits
        candidates = chain([legal], (f"{legal}_{number}" for number in count(2)))
        new_names[name] = next(each for each in candidates if each not in names and each not in new_names.values())
    return new_names


def with_names(schema: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    def renamed_texts(listed: object) -> list[str]:
        return [names.get(name, name) for name in _texts(listed)]

    def rename_properties(each: dict[str, Any]) -> dict[str, Any]:
        found = dict(each)
        for key in {"properties", "dependentSchemas", "dependentRequired"} & each.keys():
            found[key] = {names.get(name, name): value for name, value in as_object(each[key]).items()}
        if "dependentRequired" in found:
            dependent = found["dependentRequired"].items()
            found["dependentRequired"] = {name: renamed_texts(others) for name, others in dependent}
        if "required" in each:
            found["required"] = renamed_texts(each["required"])
        if "$ref" in each:
            steps = as_text(each["$ref"]).split("/")
            found["$ref"] = "/".join(names.get(_unescaped_step(step), step) for step in steps)
        return found

    return as_object(_with_changed_schemas(schema, rename_properties))


def with_items(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with `items` in each array, because OpenAI and Gemini refuse an array without it."""

    def add_items(each: dict[str, Any]) -> dict[str, Any]:
        return each | {"items": {}} if "items" not in each and "array" in _schema_types(each) else each

    changed = _with_changed_schemas(schema, add_items)
    return schema if changed == schema else changed


def with_keys(value: Any, schema: dict[str, Any], names: Mapping[str, str], *, back: bool = False) -> Any:
    """Return a value with the keys in `names` renamed that are properties in `schema`.

    `names` has the new names by the names in the schema. With `back`, the names of the schema replace the new ones.
    """
    new_keys = {new: own for own, new in names.items()} if back else names
    return _KeyRenaming(schema, new_keys, is_back=back).renamed(value, [schema])


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a simpler schema with the few keywords that every provider accepts: types, properties, enums."""
    return _PlainSchema(schema).merged([schema]) | {"type": "object"}


def _with_changed_schemas(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return the schema after a change of each schema in it, the innermost first."""
    if isinstance(schema, list):
        return [_with_changed_schemas(each, change) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in _SCHEMA_MAP_KEYWORDS:
            found[key] = {name: _with_changed_schemas(each, change) for name, each in as_object(value).items()}
        else:
            found[key] = _with_changed_schemas(value, change) if key in _SCHEMA_KEYWORDS else value
    return change(found)


def _parts(schemas: Iterable[object], root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return these schemas, and the schemas for the same value that they contain or refer to."""
    waiting, found = list(schemas), dict[int, dict[str, Any]]()
    for each in waiting:
        part = as_object(each)
        if part and id(part) not in found and len(found) < _MAX_PARTS:
            found[id(part)] = part
            for key in _SAME_VALUE_KEYWORDS:
                waiting += as_objects(part.get(key)) or [part.get(key)]
            waiting.append(_referred_schema(part, root))
    return list(found.values())


def _referred_schema(schema: dict[str, Any], root: dict[str, Any]) -> object:
    """Return the schema that `$ref` refers to, or None if that is not within `root`."""
    pointer = as_text(schema.get("$ref"))
    if not pointer.startswith("#"):
        return None
    found: object = root
    for step in pointer.split("/")[1:]:
        found = as_object(found).get(_unescaped_step(step))
    return found


def _unescaped_step(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _properties(schemas: Iterable[object], root: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the different schemas of each property, by its name."""
    found: dict[str, list[Any]] = {}
    for part in _parts(schemas, root):
        for name, each in as_object(part.get("properties")).items():
            known = found.setdefault(name, [])
            if each not in known:
                known.append(each)
    return found


def _required_field(schemas: Sequence[object], root: dict[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `required` with the properties that each of these schemas requires, or no field."""
    required = frozenset(properties).intersection(*(_required_names(each, root, {}) for each in schemas))
    return {"required": sorted(required)} if required else {}


def _required_names(schema: object, root: dict[str, Any], known: dict[int, frozenset[str]]) -> frozenset[str]:
    """Return the properties that every value must have. `known` ends circular references."""
    part = as_object(schema)
    if not part or id(part) in known:
        return known.get(id(part), frozenset())
    known[id(part)] = frozenset()
    found = frozenset(_texts(part.get("required")))
    for each in (*as_objects(part.get("allOf")), *filter(None, [_referred_schema(part, root)])):
        found |= _required_names(each, root, known)
    for branches in filter(None, map(as_objects, (part.get("anyOf"), part.get("oneOf")))):
        found |= frozenset[str].intersection(*(_required_names(each, root, known) for each in branches))
    known[id(part)] = found
    return found


@dataclass(frozen=True)
class _KeyRenaming:
    root: dict[str, Any]
    new_keys: Mapping[str, str]
    """New keys by old keys."""
    is_back: bool
    """True if the new keys are the names in the schema. Otherwise the old keys are."""

    def renamed(self, value: Any, schemas: Iterable[object]) -> Any:
        """Return a value for which these schemas hold, with new keys at all levels."""
        parts = _parts(schemas, self.root)
        if isinstance(value, list):
            items = [each for part in parts for each in (part.get("items"), *as_objects(part.get("prefixItems")))]
            return [self.renamed(each, items) for each in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        properties = _properties(parts, self.root)
        other_schemas = [part.get("additionalProperties") for part in parts]
        found: dict[str, Any] = {}
        for key, each in fields.items():
            new_key = self.new_keys.get(key, key)
            name = new_key if self.is_back else key
            is_renamed = name in properties and new_key not in fields  # otherwise a field could replace another one
            found[new_key if is_renamed else key] = self.renamed(each, properties.get(name, other_schemas))
        return found


class _PlainSchema:
    """Makes a plain schema of a schema, with a limited number of parts."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._parts_left = _MAX_PLAIN_PARTS

    def merged(self, schemas: Sequence[object], depth: int = 0) -> dict[str, Any]:
        """Return one plain schema for a value that may fit any of these schemas."""
        parts = _parts(schemas, self._root)
        listed = [value for part in parts for value in inner_values(part.get("enum")) if value is not None]
        is_short = len(listed) <= _MAX_PLAIN_VALUES and all(isinstance(value, str) and value for value in listed)
        kinds = [kind for part in parts for kind in _schema_types(part) if kind in _PLAIN_TYPES]
        kind = "string" if listed and is_short else next(iter(kinds), "string")
        plain: dict[str, Any] = {"type": kind}
        if text := next(filter(None, (as_text(part.get("description")) for part in parts)), ""):
            plain["description"] = text[:MAX_PLAIN_CHARS]
        if listed and is_short:
            plain["enum"] = listed
        is_deepest = depth >= _MAX_PLAIN_DEPTH
        if kind == "object":
            inner = {} if is_deepest else _properties(parts, self._root)
            properties = {name: each for name, each in inner.items() if self._take_part()}
            plain["properties"] = {name: self.merged(each, depth + 1) for name, each in properties.items()}
            plain |= _required_field(schemas, self._root, properties)
        if kind == "array":
            items = [part["items"] for part in parts if "items" in part and not is_deepest and self._take_part()]
            plain["items"] = self.merged(items, depth + 1)
        return plain

    def _take_part(self) -> bool:
        """Count one more part, and return whether it is within the limit."""
        self._parts_left -= 1
        return self._parts_left >= 0


def _schema_types(schema: dict[str, Any]) -> list[str]:
    """Return the types that a schema states, or else the one that its keywords imply."""
    kind = schema.get("type")
    if kinds := [as_text(kind)] if as_text(kind) else _texts(kind):
        return kinds
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema else []


def _texts(value: object) -> list[str]:
    """Return the texts of a list. A schema from outside may have anything in their place."""
    return [each for each in cast("list[object]", value) if isinstance(each, str)] if isinstance(value, list) else []
