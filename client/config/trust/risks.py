"""The risks of a configuration: it runs code, widens tools or policy, or names another server.

A key that is harmless by itself can undo what the user has set elsewhere. So a harmless key is listed with the settings
of the user that make it a risk.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from orga.workflows.types.agents import READ_ONLY_TOOLS

Key = tuple[str, ...]
_MAX_SHOWN = 300  # characters of a value

_WIDE = "wide"
WIDE: Key = (_WIDE,)
"""A pseudo setting of the user. It is set if some agent has tools that do more than read, and not from the file."""

_MODELS = ("models", "agents.*.model", "agents.*.critics", "goals.tiers", "knowledge.embedder", _WIDE)
"""The settings that choose a model. They decide who sees what agents read, and what that costs."""
_TOOLS = (
    *("tools.python", "tools.manifests", "tools.activities", "tools.deferred", "tools.commands", "tools.options"),
    *("mcp", _WIDE),
)
"""The settings that give agents tools."""

_HARMLESS_UNLESS_SET: dict[str, tuple[str, ...]] = {
    "temporal.task_queue": ("temporal",),
    "temporal.roll_over_events": ("temporal",),
    "agents.*.description": (_WIDE,),
    "agents.*.model": _MODELS,
    "agents.*.instructions": (_WIDE,),
    "agents.*.delegates": ("agents", _WIDE),
    "agents.*.decisions": (_WIDE,),
    "agents.*.critics": _MODELS,
    "agents.*.config": ("knowledge", _WIDE),
    "models.default": _MODELS,
    "models.breaker": _MODELS,
    "models.tiers.light": _MODELS,
    "models.tiers.medium": _MODELS,
    "models.tiers.heavy": _MODELS,
    "goals.tiers": _MODELS,
    "goals.prompts": ("goals", _WIDE),
    "pipelines.*": ("agents", "pipelines", _WIDE),
    "knowledge.embedder": ("knowledge", *_MODELS),
    "tools.github.repo": ("tools.github", _WIDE),
    "tools.commands.sandbox.isolation": _TOOLS,
    "tools.commands.sandbox.limits": _TOOLS,
    "tools.options.*.timeout_s": _TOOLS,
    "tools.options.*.heartbeat_timeout_s": _TOOLS,
    "tools.options.*.max_attempts": _TOOLS,
    "tools.options.*.initial_interval_s": _TOOLS,
    "tools.options.*.backoff_coefficient": _TOOLS,
    "tools.options.*.max_interval_s": _TOOLS,
    "tools.options.*.non_retryable": _TOOLS,
    "tools.options.*.isolation": _TOOLS,
    "tools.options.*.recovery": _TOOLS,
    "tools.options.*.breaker": _TOOLS,
    "tools.options.*.max_result_bytes": _TOOLS,
    "policy.surface": ("policy",),
    "policy.opa.path": ("policy",),
    "policy.opa.timeout_s": ("policy",),
    "notify.events": ("notify",),
    "notify.format": ("notify",),
    "telemetry.enabled": ("telemetry",),
    "telemetry.service_name": ("telemetry",),
    "telemetry.export_interval_s": ("telemetry",),
}
"""Keys that are harmless unless the user has set one of the keys on the right. Keys in no table need trust."""

_SAFE_TOOLS = {*READ_ONLY_TOOLS, "terminate"}
_OWN_PROVIDERS = ("ollama:", "local:", "offline:")
"""Providers that run on this machine, or on a machine that the user has named."""


def reads_only(tools: Any) -> bool:
    """Return whether agents with these tools can only read the folder."""
    return isinstance(tools, list) and all(tool in _SAFE_TOOLS for tool in cast("list[Any]", tools))


def _is_inside(value: Any, folder: Path) -> bool:
    return isinstance(value, str) and Path(value).resolve().is_relative_to(folder.resolve())


def _are_own_models(models: Any, _: Path) -> bool:
    return isinstance(models, list) and all(
        str(model).strip().startswith(_OWN_PROVIDERS) for model in cast("list[Any]", models)
    )


@dataclass(frozen=True)
class _Conditions:
    """The two conditions under which a key is harmless."""

    user_keys: tuple[str, ...]
    """The user has set none of these keys."""
    accepts: Callable[[Any, Path], bool] = lambda value, folder: True
    """This function accepts the value, given the folder of the file."""


_HARMLESS_VALUES: dict[str, _Conditions] = {
    "agents.*.tools": _Conditions((), lambda value, _: reads_only(value)),
    "models.tiers.local": _Conditions(_MODELS, _are_own_models),
    "tools.files.root": _Conditions((), _is_inside),
    "policy.dir": _Conditions(("policy",), _is_inside),
    "policy.engine": _Conditions(("policy",), lambda value, _: value in ("cedar", "default")),
    "knowledge.backend": _Conditions(("knowledge",), lambda value, _: value == "sqlite"),
}
"""Keys of which only some values are harmless."""

_ALWAYS_HARMLESS_UNLESS_SET: dict[str, Any] = {
    "tools.options.*.approval": True,
    "tools.commands.sandbox.isolation": "bubblewrap",
    "tools.commands.sandbox.network": False,
}
"""Values that are harmless whatever the user has set."""

_WHY: dict[str, str] = {
    "agents.*.tools": "gives an agent tools that do more than read this folder",
    "tools.python": "runs Python code of this folder",
    "tools.manifests": "makes tools of programs, and of requests that may carry secrets of the environment",
    "tools.activities": "lets agents call activities of other workers",
    "tools.deferred": "lets other programs and people give agents the results of calls",
    "tools.commands": "lets agents start programs",
    "tools.files.root": "lets agents read another folder",
    "tools.web": "lets agents fetch from private addresses",
    "tools.github": "sends the GitHub token to a server",
    "tools.options": "describes tools, and policies rely on the description",
    "mcp": "starts programs, or sends what agents write to servers",
    "models.base_urls": "sends API keys, and all that agents read, to a server",
    "models.endpoints": "sends what agents read, and variables of the environment, to servers",
    "models.prices": "sets the prices of models, and so changes limits in dollars",
    "models.tiers": "chooses the models of the tiers",
    "temporal.address": "carries out runs of another Temporal server",
    "temporal": "changes how a worker serves a Temporal server",
    "policy.engine": "lets all calls through, or lets a server decide",
    "policy": "takes decisions from other rules or a server",
    "notify": "reports to a server what waits for people",
    "goals.deliveries": "sends the answers of goals to files, servers and people",
    "knowledge.path": "takes the knowledge of agents from a file that others may have written",
    "knowledge": "stores what agents learn on a server, and takes their knowledge from there",
    "telemetry": "sends traces and metrics of runs to a server",
    "audit": "chooses whose signatures count, and which key signs",
}


class UserSetting(NamedTuple):
    """A key that the user has set, and the variable that sets it."""

    key: Key
    variable: str


@dataclass(frozen=True)
class UserSettings:
    """The user's own settings, which do not come from the file."""

    settings: Sequence[UserSetting] = ()
    server: str = ""
    """The Temporal server that the user has named. A worker here would serve all users of that server."""

    def variable_for(self, patterns: Sequence[str]) -> str:
        """Return the variable that sets one of these keys, or a key below one of them, or ""."""
        for key, variable in self.settings:
            if any(_is_below(key, pattern) for pattern in patterns):
                return variable
        return ""


@dataclass(frozen=True)
class Risk:
    """One key that needs trust."""

    key: Key
    value: Any
    user_setting: str = ""
    """The user's setting that makes the key a risk, or ""."""
    why: str = field(default="", kw_only=True)
    """The effect of the key. If empty, the key's own text in `_WHY` is shown."""

    def __str__(self) -> str:
        """Return the risk on one line, with control characters escaped."""
        own_text = next((text for pattern, text in _WHY.items() if _is_below(self.key, pattern)), "")
        why = self.why or own_text or "changes what you have set"
        name = _escaped(".".join(self.key))
        value = json.dumps(self.value, default=str)
        if len(value) > _MAX_SHOWN:
            value = f"{value[:_MAX_SHOWN]}… (cut, {len(value):,} characters)"
        setting = f" (you have set {_escaped(self.user_setting)})" if self.user_setting else ""
        return f"{name} = {value}: {why}{setting}"


def _escaped(text: str) -> str:
    """Return the text with control characters escaped as in JSON, but without quotes."""
    return json.dumps(text)[1:-1]


def risks(file: Mapping[str, Any], folder: Path, user: UserSettings | None = None) -> list[Risk]:
    """Return the risks of the tables of a file. Their paths are absolute. `folder` is the folder of the file."""
    return list(_risks((), file, folder, user or UserSettings()))


def _risks(key: Key, value: Any, folder: Path, user: UserSettings) -> Iterator[Risk]:
    """Yield the risks of the key and of all keys below it."""
    if _is_always_harmless(key, value):
        return
    if conditions := _harmless_conditions(key):
        variable = user.variable_for(conditions.user_keys)
        if not conditions.accepts(value, folder):
            yield Risk(key, value, user.server or variable)
        elif user.server:
            yield Risk(key, value, user.server, why="holds for all runs of that server that a worker here carries out")
        elif variable:
            yield Risk(key, value, variable)
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _risks((*key, name), inner, folder, user)
    else:
        yield Risk(key, value)


def _is_always_harmless(key: Key, value: Any) -> bool:
    if value in ([], {}, ""):
        return True
    return any(
        value == harmless and _matches(key, pattern) for pattern, harmless in _ALWAYS_HARMLESS_UNLESS_SET.items()
    )


def _harmless_conditions(key: Key) -> _Conditions | None:
    """Return the conditions under which the key is harmless, or None if no table names it."""
    for pattern, conditions in _HARMLESS_VALUES.items():
        if _matches(key, pattern):
            return conditions
    for pattern, user_keys in _HARMLESS_UNLESS_SET.items():
        if _matches(key, pattern):
            return _Conditions(user_keys)
    return None


def _is_below(key: Key, pattern: str) -> bool:
    return _matches(key[: pattern.count(".") + 1], pattern)


def _matches(key: Key, pattern: str) -> bool:
    parts = pattern.split(".")
    return len(parts) == len(key) and all(part in ("*", name) for part, name in zip(parts, key, strict=True))
