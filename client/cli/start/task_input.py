"""From the options of `orga run` to the checked input of a run."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import task_text
from orga.client.config.environment import from_text
from orga.client.config.problems import nearest
from orga.workflows.types.goals.input import GoalConfig, GoalInput, parse_goal
from orga.workflows.types.input import AgentInput, LoopConfig, parse_input
from orga.workflows.types.record import Border, InvalidInput, annotation_at, known_keys
from orga.workflows.types.sessions.input import SessionInput, parse_session
from orga.workflows.types.text import as_line, clean_text


@dataclass(frozen=True)
class Given:
    """The options as they were typed; None and empty where they were not."""

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


def agent_input(given: Given) -> AgentInput:
    """Return the input, checked before anything is started.

    Raises:
        UsageError: An option that cannot be read.
        InvalidInput: A value that is not allowed.
    """
    with naming_options(given.settings, given.max_iterations, given.timeout_s):
        return parse_input({"task": clean_text(task_text(given.task)), **_of_the_agent(given)})


def session_input(given: Given, idle_timeout_s: float | None) -> SessionInput:
    """Return the input of a session, which has no task, checked before anything is started.

    Raises:
        UsageError: An option that cannot be read.
        InvalidInput: A value that is not allowed.
    """
    idle = {} if idle_timeout_s is None else {"idle_timeout_s": idle_timeout_s}
    with naming_options(given.settings, given.max_iterations, given.timeout_s):
        return parse_session({**_of_the_agent(given), **idle})


def _of_the_agent(given: Given) -> dict[str, Any]:
    raw = {
        "agent": given.agent,
        "model": given.model,
        "instructions": given.instructions,
        "tools": _names(given.tools),
        "config": _config(given),
        "trusted_context": dict(_trusted(pair) for pair in given.trusted),
        "tenant": given.tenant,
    }
    return {key: _clean(value) for key, value in raw.items() if value not in (None, {})}


@dataclass(frozen=True)
class GoalGiven:
    """The options of `orga goal` as they were typed; None and empty where they were not."""

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


def goal_input(given: GoalGiven) -> GoalInput:
    """Return the input of a goal, checked before anything is started.

    Raises:
        UsageError: An option that cannot be read.
        InvalidInput: A value that is not allowed.
    """
    raw = {
        "goal": task_text(given.goal),
        "agent": given.agent,
        "model": given.model,
        "skills": _names(given.skills),
        "config": _with_limits(settings(given.settings, GoalConfig), given.max_iterations, given.timeout_s),
        "tenant": given.tenant,
        "deliver": _names(given.deliver),
        "pipeline": given.pipeline,
        "inputs": [clean_text(each) for each in given.inputs] or None,
    }
    with naming_options(given.settings, given.max_iterations, given.timeout_s):
        return parse_goal({key: _clean(value) for key, value in raw.items() if value not in (None, {})})


@contextmanager
def naming_options(
    texts: Sequence[str], max_iterations: float | None = None, timeout_s: float | None = None
) -> Generator[None]:
    """Let an error about a key of the config name the option that set it.

    Raises:
        InvalidInput: As the block does.
    """
    try:
        yield
    except InvalidInput as error:
        told = str(error)
        limits = {"max_iterations": ("--max-iterations", max_iterations), "timeout_s": ("--timeout", timeout_s)}
        named = {key: f"{option} {value}" for key, (option, value) in limits.items() if value is not None}
        named |= {text.partition("=")[0].strip(): f"--set {as_line(text)[:SHOWN_CHARS]}" for text in texts}
        for key, option in named.items():
            told = told.replace(f"config.{key}: ", f"{option}: ")
        raise InvalidInput(told) from None


SHOWN_CHARS = 80


def pair_of(text: str, option: str) -> tuple[str, str]:
    """Return the two sides of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{option} {text!r}: write {option} key=value")
    return key.strip(), value


def _names(options: Sequence[str]) -> list[str] | None:
    """Return the names; `--tools ""` chooses none, no option leaves the choice to the agent."""
    if not options:
        return None
    return [name.strip() for option in options for name in option.split(",") if name.strip()]


def settings(texts: Sequence[str], of: type[Border] = LoopConfig) -> dict[str, Any]:
    """Return the keys of a config, the loop's or another, that `--set key=value` names.

    Raises:
        UsageError: There is no such key.
    """
    config: dict[str, Any] = {}
    for text in texts:
        key, value = pair_of(text, "--set")
        _put(config, of, tuple(key.split(".")), value)
    return config


def _config(given: Given) -> dict[str, Any]:
    return _with_limits(settings(given.settings), given.max_iterations, given.timeout_s)


def _with_limits(config: dict[str, Any], max_iterations: int | None, timeout_s: float | None) -> dict[str, Any]:
    limits = {"max_iterations": max_iterations, "timeout_s": timeout_s}
    return config | {name: limit for name, limit in limits.items() if limit is not None}


def _put(config: dict[str, Any], of: type[Border], path: tuple[str, ...], value: str) -> None:
    annotation = annotation_at(of, path)
    if annotation is None:
        known = known_keys(of, path[:-1]) or list(of.model_fields)
        raise UsageError(f"--set {'.'.join(path)}: unknown key; {nearest(path[-1], known)}")
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = from_text(annotation, value)


def _trusted(text: str) -> tuple[str, Any]:
    """Return a fact; a value that is JSON (`true`, `3`, `["a"]`) is taken as such, else as text."""
    key, value = pair_of(text, "--trusted")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _clean(value: Any) -> Any:
    return clean_text(value) if isinstance(value, str) else value
