"""State of the settings at run time, and checks of a change. A worker checks the values against its configuration."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from orga.workflows.types.record import parse_record
from orga.workflows.types.settings import (
    MAX_KEYS,
    MAX_SET_BYTES,
    MAX_VERSIONS,
    MAX_VERSIONS_BYTES,
    SettingProblem,
    SettingsChange,
    SettingsState,
    SettingsVersion,
)
from orga.workflows.types.text import clean_text, one_line

MAX_SHOWN_PROBLEMS = 20
MAX_PROBLEM_CHARS = 500

_LONG = frozenset({"values"})
"""Keys whose texts may be long. `size_problem` limits the bytes of all values."""


class StaleSettings(ValueError):
    """The change was made from another version than the current one."""


def initial_settings(given: object) -> SettingsState:
    """Return the state of a new segment. Anybody can start the workflow, so an empty state replaces an invalid one."""
    try:
        state = SettingsState.model_validate(given)
    except ValidationError:
        return SettingsState()
    return state.with_versions(_kept_versions(state.versions))


def parsed_change(raw: object) -> SettingsChange:
    """Return the change. Raise ValueError, which names each bad key, if it is invalid or too large."""
    change = parse_record(SettingsChange, raw, long=_LONG)
    if problem := size_problem(change.values):
        raise ValueError(f"values: {problem}")
    return change


def size_problem(values: Mapping[str, Any]) -> str:
    if len(values) > MAX_KEYS:
        return f"has {len(values)} keys; at most {MAX_KEYS} are allowed"
    if (size := len(to_json(values, inf_nan_mode="null"))) > MAX_SET_BYTES:
        return f"has {size:,} bytes of JSON; at most {MAX_SET_BYTES:,} are allowed, so shorten the longest texts"
    return ""


def refuse_stale(state: SettingsState, change: SettingsChange) -> None:
    if change.version != state.version:
        by = f", saved by {state.versions[-1].by}" if state.versions else ""
        raise StaleSettings(
            f"version: the set was made from version {change.version}, and the current one is {state.version}{by}; "
            "read the settings again, and repeat your changes there"
        )


def with_change(state: SettingsState, change: SettingsChange, now: datetime) -> SettingsState:
    """Return the state with one more version. Above the limits, the oldest versions are dropped."""
    before, after = state.values, change.values
    in_both = before.keys() & after.keys()
    changed = sorted((before.keys() ^ after.keys()) | {key for key in in_both if before[key] != after[key]})
    version = SettingsVersion(
        version=state.version + 1,
        by=one_line(clean_text(change.by), 200) or "unknown",
        at=now,
        changed=tuple(changed),
        values=change.values,
    )
    return state.with_versions(_kept_versions((*state.versions, version)))


def _kept_versions(versions: tuple[SettingsVersion, ...]) -> tuple[SettingsVersion, ...]:
    kept, size = list[SettingsVersion](), 0
    for version in reversed(versions[-MAX_VERSIONS:]):
        size += len(version.model_dump_json())
        if kept and size > MAX_VERSIONS_BYTES:
            break
        kept.insert(0, version)
    return tuple(kept)


def problems_text(problems: Iterable[SettingProblem]) -> str:
    """Return a short text of the problems, because it is the message of a failure."""
    lines = [f"{problem.where}: {problem.detail}"[:MAX_PROBLEM_CHARS] for problem in problems]
    more = [f"and {len(lines) - MAX_SHOWN_PROBLEMS} more"] if len(lines) > MAX_SHOWN_PROBLEMS else []
    return "; ".join([*lines[:MAX_SHOWN_PROBLEMS], *more])
