"""`ORGA_SECTION__KEY` variables, which override the file's settings."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_origin

from orga.client.config.sections import OrgaConfig
from orga.workflows.types.json_text import as_object
from orga.workflows.types.record import annotation_at, is_model, kinds_of

PREFIX = "ORGA_"
SEPARATOR = "__"
"""Occurs in every setting's name, and in no other variable of ours (`ORGA_HOME`, `ORGA_CONFIG`)."""


def parse_setting(annotation: Any, text: str) -> Any:
    """Return None for `null`, a list or table for JSON, a list for `a,b`. Pydantic parses any other text, as it is."""
    kinds = kinds_of(annotation)
    if text == "null" and NoneType in kinds:
        return None
    is_list = any(get_origin(kind) is tuple for kind in kinds)
    is_table = any(is_model(kind) or get_origin(kind) is dict for kind in kinds)
    if text.lstrip().startswith(("[", "{")) and (is_list or is_table):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


@dataclass(frozen=True)
class Setting:
    variable: str
    path: tuple[str, ...]
    value: Any


def settings(env: Mapping[str, str], file: Mapping[str, Any]) -> list[Setting]:
    """Return the environment's settings. A key is written as in the file, or in lower case if the file lacks it."""
    found: list[Setting] = []
    for variable in sorted(env):
        if variable.startswith(PREFIX) and SEPARATOR in variable:
            path = _path_as_in_file(variable.removeprefix(PREFIX).split(SEPARATOR), file)
            found.append(Setting(variable, path, parse_setting(annotation_at(OrgaConfig, path), env[variable])))
    return found


def bare_sections(env: Mapping[str, str]) -> list[str]:
    """Return the variables that name a section without a key. They set nothing, which the user does not expect."""
    return [variable for name in OrgaConfig.model_fields if (variable := PREFIX + name.upper()) in env]


def merge_settings(file: Mapping[str, Any], overrides: Iterable[Setting]) -> dict[str, Any]:
    """Return the file's tables, overridden by the settings."""
    merged = _copy_tables(file)
    for setting in overrides:
        table = merged
        for key in setting.path[:-1]:
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        table[setting.path[-1]] = setting.value
    return merged


def _path_as_in_file(parts: list[str], file: Mapping[str, Any]) -> tuple[str, ...]:
    path: list[str] = []
    table: Any = file
    for part in parts:
        keys = as_object(table)
        key = next((key for key in keys if key.lower() == part.lower()), part.lower())
        table = keys.get(key)
        path.append(key)
    return tuple(path)


def _copy_tables(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy_tables(value) if isinstance(value, dict) else value for key, value in table.items()}  # pyright: ignore[reportUnknownArgumentType]
