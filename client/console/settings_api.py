"""Settings at run time: `GET /settings` shows each key, its source and all versions, `PUT /settings` saves a set."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from orga.activities.text.secrets import KnownSecrets
from orga.client.config.file import ConfigSources, config_sources
from orga.client.config.run_time import RunTimeRules
from orga.client.console.problems import Problem
from orga.client.console.routes import Call, NoParameters, Routes
from orga.client.console.setting_items import FixedKey, SettingItem, fixed_keys, setting_items
from orga.client.errors import InvalidSettings, OrgaError
from orga.client.runs.settings import SettingsCondition, read_settings, save_settings, settings_versions
from orga.workflows.decisions.settings import problems_text
from orga.workflows.types.record import CheckedInput, Record
from orga.workflows.types.settings import SettingsVersion

ROUTES = Routes()


class SettingsView(Record):
    version: int
    """The version to save the next set from. 0 if there is none."""
    state: SettingsCondition
    """In every state but `ready`, the workers' configuration counts alone."""
    detail: str
    """The problem, and the remedy."""
    items: tuple[SettingItem, ...]
    fixed: tuple[FixedKey, ...]
    versions: tuple[SettingsVersion, ...]
    """Oldest first."""


class SettingsToSave(CheckedInput):
    """A whole set. Keys that are left out are reset."""

    version: int = Field(ge=0)
    """The version that it was made from."""
    values: dict[str, Any]
    """JSON values by key."""


def sources_of(call: Call[Any]) -> ConfigSources:
    """Return the configuration in the console's folder, with the source of each key. Nothing of it is run."""
    return config_sources(call.console.config_file, folder=Path.cwd(), env=os.environ)


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


async def _settings(call: Call[Any]) -> SettingsView:
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
    items = await asyncio.to_thread(setting_items, sources, rules.default_model, values)
    known = KnownSecrets.from_environment(os.environ)
    shown = tuple(item if item.source == "run time" else _item_without_secrets(item, known) for item in items)
    fixed = tuple(await asyncio.to_thread(fixed_keys, sources))
    return SettingsView(version=found.version, state=state, detail=detail, items=shown, fixed=fixed, versions=versions)


def _item_without_secrets(item: SettingItem, known: KnownSecrets) -> SettingItem:
    return SettingItem.model_validate(_redacted(item.model_dump(), known))


@ROUTES.get("/settings")
async def _show(call: Call[NoParameters]) -> SettingsView:
    """Return each key that can be set at run time, with its value, source and range, and all versions."""
    return await _settings(call)


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
    return await _settings(call)
