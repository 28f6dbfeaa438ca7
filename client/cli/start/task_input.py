"""Turns the options of the commands that start something (`run`, `goal`, `chat`, `schedule`) into checked input."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orga.activities.media import Media, UnusableMedia, loaded_media
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import text_or_stdin
from orga.client.config.environment import parse_setting
from orga.client.config.problems import unknown_key_remedy
from orga.client.runs.attachments import read_attachment, refuse_too_many
from orga.workflows.types.goals.goal_input import GoalConfig, GoalInput, parse_goal
from orga.workflows.types.input import MAX_ATTACHMENTS, AgentInput, LoopConfig, parse_input
from orga.workflows.types.record import CheckedInput, InvalidInput, annotation_at, known_keys
from orga.workflows.types.sessions.session_input import SessionInput, parse_session
from orga.workflows.types.text import clean_text, escaped_line


@dataclass(frozen=True)
class RunOptions:
    """The options as typed. Options that were not given are None or empty."""

    task: str
    agent: str | None = None
    model: str | None = None
    instructions: str | None = None
    tools: Sequence[str] = ()
    settings: Sequence[str] = ()
    max_iterations: int | None = None
    timeout_s: float | None = None
    tenant: str | None = None
    trusted: Sequence[str] = ()


def agent_input(options: RunOptions) -> AgentInput:
    """Return a run's checked input. Raise UsageError for an option that cannot be parsed, InvalidInput for a value."""
    with option_names_in_errors(_options_by_key(options)):
        return parse_input({"task": clean_text(text_or_stdin(options.task)), **_raw_agent_input(options)})


def attached_media(
    paths: Sequence[str | Path],
    option: str = "--attach",
    *,
    limit: int = MAX_ATTACHMENTS,
    earlier: Sequence[Media] = (),
) -> list[Media]:
    """Return the `earlier` media, and those of the files.

    Raises:
        UsageError: There are too many files, or no model could read one of them.
    """
    attached = [*earlier]
    try:
        refuse_too_many(len(attached) + len(paths), limit)
        for path in paths:
            attached.append(read_attachment(path))
            loaded_media(attached[-1])
    except UnusableMedia as error:
        raise UsageError(f"{option} {error}") from None
    return attached


def session_input(options: RunOptions, idle_timeout_s: float | None) -> SessionInput:
    """Return a session's checked input, without a task. Raise as `agent_input` does."""
    idle = {} if idle_timeout_s is None else {"idle_timeout_s": idle_timeout_s}
    with option_names_in_errors(_options_by_key(options)):
        return parse_session({**_raw_agent_input(options), **idle})


def _raw_agent_input(options: RunOptions) -> dict[str, Any]:
    raw = {
        "agent": options.agent,
        "model": options.model,
        "instructions": options.instructions,
        "tools": _split_names(options.tools),
        "config": parse_settings(options.settings) | _limits(options),
        "trusted_context": dict(_parse_fact(pair) for pair in options.trusted),
        "tenant": options.tenant,
    }
    return {key: _clean_value(value) for key, value in raw.items() if value not in (None, {})}


@dataclass(frozen=True)
class GoalOptions:
    """The options of `orga goal` as typed. Options that were not given are None or empty."""

    goal: str
    agent: str | None = None
    model: str | None = None
    skills: Sequence[str] = ()
    settings: Sequence[str] = ()
    max_iterations: int | None = None
    timeout_s: float | None = None
    tenant: str | None = None
    deliver: Sequence[str] = ()
    pipeline: str | None = None
    inputs: Sequence[str] = ()


def goal_input(options: GoalOptions) -> GoalInput:
    """Return a goal's checked input. Raise as `agent_input` does."""
    raw = {
        "goal": text_or_stdin(options.goal),
        "agent": options.agent,
        "model": options.model,
        "skills": _split_names(options.skills),
        "config": parse_settings(options.settings, GoalConfig) | _limits(options),
        "tenant": options.tenant,
        "deliver": _split_names(options.deliver),
        "pipeline": options.pipeline,
        "inputs": [clean_text(each) for each in options.inputs] or None,
    }
    with option_names_in_errors(_options_by_key(options)):
        return parse_goal({key: _clean_value(value) for key, value in raw.items() if value not in (None, {})})


@contextmanager
def option_names_in_errors(options: Mapping[str, str]) -> Generator[None]:
    """Replace config keys in the block's InvalidInput by the options that set them.

    Args:
        options: The options as typed, by the config keys that they set.
    """
    try:
        yield
    except InvalidInput as error:
        problems = error.problems
        for key, option in options.items():
            problems = [problem.replace(f"config.{key}: ", f"{option}: ") for problem in problems]
        raise InvalidInput(*problems) from None


_SHOWN_CHARS = 80
"""Characters of a setting in an error. The rest is cut."""

_LIMIT_OPTIONS = {"max_iterations": "--max-iterations", "timeout_s": "--timeout"}
"""Limits that have an option of their own, by config key."""


def set_options(settings: Sequence[str]) -> dict[str, str]:
    """Return each `--set key=value` as typed, by its config key."""
    return {text.partition("=")[0].strip(): f"--set {escaped_line(text)[:_SHOWN_CHARS]}" for text in settings}


def _options_by_key(options: RunOptions | GoalOptions) -> dict[str, str]:
    limits = {key: f"{_LIMIT_OPTIONS[key]} {limit}" for key, limit in _limits(options).items()}
    return limits | set_options(options.settings)


def _limits(options: RunOptions | GoalOptions) -> dict[str, float]:
    limits = {"max_iterations": options.max_iterations, "timeout_s": options.timeout_s}
    return {key: limit for key, limit in limits.items() if limit is not None}


def parse_pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{option} {text!r}: write {option} key=value")
    return key.strip(), value


def _split_names(options: Sequence[str]) -> list[str] | None:
    """Return the names. `--tools ""` means an empty list. Return None if the option was not given."""
    if not options:
        return None
    return [name.strip() for option in options for name in option.split(",") if name.strip()]


def parse_settings(texts: Sequence[str], config_type: type[CheckedInput] = LoopConfig) -> dict[str, Any]:
    """Return the part of a config that `--set key=value` sets. Raise UsageError if there is no such key."""
    config: dict[str, Any] = {}
    for text in texts:
        key, value = parse_pair(text, "--set")
        _put_setting(config, config_type, tuple(key.split(".")), value)
    return config


def _put_setting(config: dict[str, Any], config_type: type[CheckedInput], path: tuple[str, ...], value: str) -> None:
    annotation = annotation_at(config_type, path)
    if annotation is None:
        known = known_keys(config_type, path[:-1]) or list(config_type.model_fields)
        raise UsageError(f"--set {'.'.join(path)}: unknown key; {unknown_key_remedy(path[-1], known)}")
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = parse_setting(annotation, value)


def _parse_fact(text: str) -> tuple[str, Any]:
    """Return a fact's key and value. A value that is JSON (`true`, `3`, `["a"]`) is decoded; any other is text."""
    key, value = parse_pair(text, "--trusted")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _clean_value(value: Any) -> Any:
    return clean_text(value) if isinstance(value, str) else value
