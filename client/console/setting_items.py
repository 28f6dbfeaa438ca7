"""Each key that can be set at run time, for people: its value, where that comes from, its type, range and meaning."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from orga.client.config.file import ConfigSources
from orga.client.config.run_time import setting_paths, value_at
from orga.client.config.sections import OrgaConfig
from orga.client.console.schemas import json_schema
from orga.workflows.decisions.goals.prompts import DEFAULT_PROMPTS
from orga.workflows.decisions.goals.templates import PLACEHOLDERS
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.requests import PROMPT_NAMES, PromptName
from orga.workflows.types.json_text import as_object, as_objects
from orga.workflows.types.record import Record

KeyPath = tuple[str, ...]

_RANGE_KEYS = ("minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "maxItems", "enum")


class TemplateVariable(Record):
    """A placeholder of a prompt template."""

    name: str
    description: str
    needed: bool


class SettingItem(Record):
    key: str
    value: Any
    """The value for runs that start now."""
    default: Any
    file_value: Any
    """The value of the file or of a variable. It holds if there is none at run time."""
    run_time_value: Any = None
    source: Literal["default", "file", "variable", "run time"]
    place: str | None = None
    """The line of the file as `orga.toml:12`, or the variable."""
    type: str
    """Its JSON type."""
    nullable: bool = False
    range: Mapping[str, Any] | None = None
    """Bounds in the words of JSON Schema."""
    description: str = ""
    template_variables: tuple[TemplateVariable, ...] | None = None


class FixedKey(Record):
    """A key that nobody sets at run time: it may run code or widen powers, or no run reads it later."""

    key: str
    place: str
    """The line of the file as `orga.toml:12`, or the variable."""


def fixed_keys(sources: ConfigSources) -> list[FixedKey]:
    """Return the keys of the file and of variables that cannot be set at run time. Their values may be secret."""
    settable = set(setting_paths(sources.config).values())
    paths = [path for path in _set_paths(sources.config.model_dump(exclude_unset=True)) if path not in settable]
    places = [(path, _short_place(sources.origin(path))) for path in paths]
    return [FixedKey(key=".".join(path), place=place) for path, place in places if place]


_KEY_DEPTH = 3
"""Tables within this one are one key, such as `mcp.servers.files`."""


def _set_paths(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[KeyPath]:
    for name, value in table.items():
        path = (*above, name)
        if isinstance(value, dict) and len(path) < _KEY_DEPTH:
            yield from _set_paths(cast("dict[str, Any]", value), path)
        else:
            yield path


def setting_items(sources: ConfigSources, default_model: str, values: Mapping[str, Any]) -> list[SettingItem]:
    """Return all keys in the order of their sections. `values` have passed the checks."""
    return [_item(key, path, sources, default_model, values) for key, path in setting_paths(sources.config).items()]


def _item(
    key: str, path: KeyPath, sources: ConfigSources, default_model: str, values: Mapping[str, Any]
) -> SettingItem:
    schema = _schema_at(path)
    kinds = as_objects(schema.get("anyOf")) or [schema]
    kind = next(each for each in kinds if each.get("type") != "null")
    bounds = {name: kind[name] for name in _RANGE_KEYS if name in kind}
    origin = sources.origin(path)
    default = _default_of(path, default_model)
    file_value = value_at(sources.config, path) if origin else default
    prompt: PromptName | None = next((name for name in PROMPT_NAMES if path == ("goals", "prompts", name)), None)
    value = values.get(key, file_value)
    is_default_if_empty = prompt is not None or path == ("models", "default")
    return SettingItem(
        key=key,
        value=default if is_default_if_empty and not value else value,
        default=default,
        file_value=file_value,
        run_time_value=values.get(key),
        source="run time" if key in values else _source_of(origin),
        place=_short_place(origin),
        type=str(kind.get("type", "string")),
        nullable=len(kinds) > 1,
        range=bounds or None,
        description=str(schema.get("description", "")),
        template_variables=tuple(_template_variables(prompt)) if prompt else None,
    )


def _source_of(origin: str | None) -> Literal["default", "file", "variable"]:
    return "default" if origin is None else "variable" if origin.startswith("ORGA_") else "file"


def _short_place(origin: str | None) -> str | None:
    """Return the place without the folder."""
    return None if origin is None else Path(origin).name


def _default_of(path: KeyPath, default_model: str) -> Any:
    match path:
        case ("models", "default"):
            return default_model
        case ("goals", "prompts", name):
            return next(text for prompt, text in DEFAULT_PROMPTS.items() if prompt == name)
        case ("goals", "deliveries", *_):
            return False
        case ("agents", name, *_):
            return value_at(OrgaConfig().with_agents({name: AgentConfig()}), path)
        case _:
            return value_at(OrgaConfig(), path)


def _template_variables(prompt: PromptName) -> Iterator[TemplateVariable]:
    for name, placeholder in PLACEHOLDERS[prompt].items():
        yield TemplateVariable(name=name, description=placeholder.what, needed=placeholder.is_needed)


@cache
def _schemas() -> dict[str, Any]:
    return json_schema(OrgaConfig)


def _schema_at(path: KeyPath) -> dict[str, Any]:
    """Return the JSON Schema of a key."""
    node = _schemas()
    for name in path:
        node = _resolved(node)
        node = as_object(as_object(node.get("properties")).get(name) or node.get("additionalProperties"))
    return _resolved(node)


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    return as_object(as_object(_schemas()["$defs"]).get(str(reference).rpartition("/")[2])) if reference else node
