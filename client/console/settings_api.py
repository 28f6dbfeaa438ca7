"""Settings at run time: `GET /settings` shows keys, sources and versions. `PUT /settings` saves a set of values."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field

from orga.activities.text.secrets import KnownSecrets
from orga.client.config.file import ConfigInputs, read_config
from orga.client.config.run_time import RunTimeRules, setting_paths, value_at
from orga.client.config.sections import OrgaConfig
from orga.client.console.openapi import json_schema
from orga.client.console.problems import Problem
from orga.client.console.routes import Call, NoParameters, Routes
from orga.client.errors import InvalidSettings, OrgaError
from orga.client.runs.settings import SettingsCondition, read_settings, save_settings, settings_versions
from orga.workflows.decisions.goals.prompts import DEFAULT_PROMPTS
from orga.workflows.decisions.goals.templates import PLACEHOLDERS
from orga.workflows.decisions.settings import problems_text
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.requests import PROMPT_NAMES, PromptName
from orga.workflows.types.json_text import as_object, as_objects
from orga.workflows.types.record import CheckedInput, Record
from orga.workflows.types.settings import SettingsVersion

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
    """The value of the file or of a variable. It counts if no value is set at run time."""
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
    """A key that cannot be set at run time: it may run code or give agents more rights, or no later run reads it."""

    key: str
    place: str
    """The line of the file as `orga.toml:12`, or the variable."""


def _fixed_keys(sources: ConfigInputs) -> list[FixedKey]:
    """Return the keys of the file and of variables that cannot be set at run time. Their values may be secret."""
    settable = set(setting_paths(sources.config).values())
    paths = [path for path in _set_paths(sources.config.model_dump(exclude_unset=True)) if path not in settable]
    places = [(path, _short_place(sources.origin(path))) for path in paths]
    return [FixedKey(key=".".join(path), place=place) for path, place in places if place]


_KEY_DEPTH = 3
"""Names of the longest key, such as `mcp.servers.files`. A table at this depth is one key."""


def _set_paths(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[KeyPath]:
    for name, value in table.items():
        path = (*above, name)
        if isinstance(value, dict) and len(path) < _KEY_DEPTH:
            yield from _set_paths(cast("dict[str, Any]", value), path)
        else:
            yield path


def _items(sources: ConfigInputs, default_model: str, values: Mapping[str, Any]) -> list[SettingItem]:
    """Return all keys in the order of their sections. `values` have passed the checks."""
    return [_item(key, path, sources, default_model, values) for key, path in setting_paths(sources.config).items()]


def _item(key: str, path: KeyPath, sources: ConfigInputs, default_model: str, values: Mapping[str, Any]) -> SettingItem:
    schema = _schema_at(path)
    kinds = as_objects(schema.get("anyOf")) or [schema]
    kind = next(each for each in kinds if each.get("type") != "null")
    bounds = {name: kind[name] for name in _RANGE_KEYS if name in kind}
    origin = sources.origin(path)
    default = _default_of(path, default_model)
    file_value = value_at(sources.config, path) if origin else default
    value = values.get(key, file_value)
    variables = _template_variables(path)
    is_default_if_empty = variables is not None or path == ("models", "default")
    return SettingItem(
        key=key,
        value=default if is_default_if_empty and not value else value,
        default=default,
        file_value=file_value,
        run_time_value=values.get(key),
        source="run time" if key in values else _source(origin),
        place=_short_place(origin),
        type=str(kind.get("type", "string")),
        nullable=len(kinds) > 1,
        range=bounds or None,
        description=str(schema.get("description", "")),
        template_variables=variables,
    )


def _source(origin: str | None) -> Literal["default", "file", "variable"]:
    if origin is None:
        return "default"
    return "variable" if origin.startswith("ORGA_") else "file"


def _template_variables(path: KeyPath) -> tuple[TemplateVariable, ...] | None:
    """Return the placeholders of a prompt template. None if the key is no template."""
    prompt: PromptName | None = next((name for name in PROMPT_NAMES if path == ("goals", "prompts", name)), None)
    if prompt is None:
        return None
    return tuple(
        TemplateVariable(name=name, description=placeholder.what, needed=placeholder.is_needed)
        for name, placeholder in PLACEHOLDERS[prompt].items()
    )


def _short_place(origin: str | None) -> str | None:
    """Return the place without folders."""
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


@cache
def _schemas() -> dict[str, Any]:
    return json_schema(OrgaConfig)


def _schema_at(path: KeyPath) -> dict[str, Any]:
    node = _schemas()
    for name in path:
        node = _resolved(node)
        node = as_object(as_object(node.get("properties")).get(name) or node.get("additionalProperties"))
    return _resolved(node)


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    return as_object(as_object(_schemas()["$defs"]).get(str(reference).rpartition("/")[2])) if reference else node


ROUTES = Routes()


class SettingsView(Record):
    version: int
    """The newest version, which the next set to save has to name. 0 if there is none."""
    state: SettingsCondition
    """In all states except `ready`, only the workers' configuration counts."""
    detail: str
    """The problem, and the remedy."""
    items: tuple[SettingItem, ...]
    fixed: tuple[FixedKey, ...]
    versions: tuple[SettingsVersion, ...]
    """Oldest first."""


class SettingsToSave(CheckedInput):
    """A whole set. Keys that are left out are reset."""

    version: int = Field(ge=0)
    """The newest version when the set was made."""
    values: dict[str, Any]
    """JSON values by key."""


def sources_of(call: Call[Any]) -> ConfigInputs:
    """Return the configuration in the console's folder, with the source of each key. No code of it is run."""
    sources = read_config(call.console.config_file)
    _ = sources.config  # reads the policy folder, which may take time, in the thread of this call
    return sources


def without_secrets(value: Any) -> Any:
    """Return a JSON value without the secrets of the environment, which a configuration may repeat."""
    return _redacted(value, KnownSecrets.from_environment(os.environ))


def _redacted(value: Any, known: KnownSecrets) -> Any:
    if isinstance(value, str):
        return known.redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(each, known) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(each, known) for each in cast("list[Any]", value)]
    return value


async def read_settings_view(call: Call[Any]) -> SettingsView:
    queue = call.console.connection.task_queue
    found = await read_settings(call.client, queue)
    sources = await asyncio.to_thread(sources_of, call)
    rules = RunTimeRules.for_display(sources.config, os.environ)
    state, detail, values = found.state, found.detail, found.values
    if problems := rules.problems(values):
        state, values = "broken", dict[str, Any]()
        detail = f"version {found.version} does not fit the configuration: {problems_text(problems)}. Save another set"
    versions: tuple[SettingsVersion, ...] = ()
    try:
        versions = await settings_versions(call.client, queue) if found.version else ()
    except OrgaError as error:
        detail = detail or f"earlier versions cannot be shown: {error}"
    items = await asyncio.to_thread(_items, sources, rules.default_model, values)
    known = KnownSecrets.from_environment(os.environ)
    shown = tuple(
        item if item.source == "run time" else SettingItem.model_validate(_redacted(item.model_dump(), known))
        for item in items
    )
    fixed = tuple(await asyncio.to_thread(_fixed_keys, sources))
    return SettingsView(version=found.version, state=state, detail=detail, items=shown, fixed=fixed, versions=versions)


@ROUTES.get("/settings")
async def _show(call: Call[NoParameters]) -> SettingsView:
    """Return each key that can be set at run time, with its value, source and range, and all versions."""
    return await read_settings_view(call)


@ROUTES.put("/settings", role="admin", more_statuses=(409, 422, 503))
async def _save(call: Call[SettingsToSave]) -> SettingsView:
    """Save a whole set for runs that start later."""
    if call.visitor.tenants is not None:
        raise Problem(403, "settings count for runs of all tenants. Ask an admin who is not limited to some")
    queue, by = call.console.connection.task_queue, call.visitor.name
    try:
        await save_settings(call.client, call.given.values, version=call.given.version, by=by, task_queue=queue)
    except InvalidSettings as error:
        errors: list[Mapping[str, str]] = [each.model_dump() for each in error.problems]
        raise Problem(422, str(error), errors=errors) from None
    return await read_settings_view(call)
