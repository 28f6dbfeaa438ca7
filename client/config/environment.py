"""`ORGA_SECTION__KEY` variables, which override the file's settings."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_origin

from orga.client.config.sections import OrgaConfig
from orga.workflows.types.json_text import as_object
from orga.workflows.types.record import annotation_at, is_model, kinds_of


def parse_setting(annotation: Any, text: str) -> Any:
    """Return None for `null`, JSON for a list or table, a list for `a,b`, and else the text itself for pydantic."""
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


PREFIX = "ORGA_"
SEPARATOR = "__"
"""Occurs in every setting's name, and in no other variable of ours (`ORGA_HOME`, `ORGA_CONFIG`)."""


@dataclass(frozen=True)
class Setting:
    variable: str
    path: tuple[str, ...]
    value: Any


def settings(env: Mapping[str, str], file: Mapping[str, Any]) -> list[Setting]:
    """Return the environment's settings. Names of agents and tools are spelt as in the file, else in lower case."""
    found: list[Setting] = []
    for variable in sorted(env):
        if variable.startswith(PREFIX) and SEPARATOR in variable:
            path = _path_as_in_file(variable.removeprefix(PREFIX).split(SEPARATOR), file)
            found.append(Setting(variable, path, parse_setting(annotation_at(OrgaConfig, path), env[variable])))
    return found


def bare_sections(env: Mapping[str, str]) -> list[str]:
    """Return the variables that name only a section. They set nothing, which their author does not expect."""
    return [variable for name in OrgaConfig.model_fields if (variable := PREFIX + name.upper()) in env]


def merge_settings(file: Mapping[str, Any], found: Iterable[Setting]) -> dict[str, Any]:
    """Return the file's tables, overridden by the settings."""
    whole = _copy_tables(file)
    for setting in found:
        table = whole
        for key in setting.path[:-1]:
            inner = table.get(key)
            table[key] = inner if isinstance(inner, dict) else {}
            table = table[key]
        table[setting.path[-1]] = setting.value
    return whole


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
