"""The risks of a configuration: it runs code, widens tools or policy, or names another server.

A key that is harmless by itself can undo what the user has set elsewhere. So each such key lists the settings of the
user that make it a risk.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from orga.workflows.types.agents import READ_ONLY_TOOLS

Key = tuple[str, ...]
_MAX_SHOWN = 300

WIDE: Key = ("wide",)
"""A pseudo setting: the user, not the file, has given some agent tools that do more than read."""

_WIDE = "wide"
_MODELS = ("models", "agents.*.model", "agents.*.critics", "goals.tiers", "knowledge.embedder", _WIDE)
"""The settings that choose a model, and so who sees what agents read, and at what price."""
_TOOLS = (
    *("tools.python", "tools.manifests", "tools.activities", "tools.deferred", "tools.commands", "tools.options"),
    *("mcp", _WIDE),
)

_HARMLESS: dict[str, tuple[str, ...]] = {
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
"""Keys that are harmless unless the user has set one of the listed keys. All other keys need trust, new ones too."""

_SAFE_TOOLS = {*READ_ONLY_TOOLS, "terminate"}
_AT_HOME = ("ollama:", "local:", "offline:")
"""Providers that are programs on this machine, or on one that the user has named."""


def reads_only(tools: Any) -> bool:
    """Return whether agents with these tools can only read the folder."""
    return isinstance(tools, list) and all(tool in _SAFE_TOOLS for tool in cast("list[Any]", tools))


def _is_inside(value: Any, folder: Path) -> bool:
    return isinstance(value, str) and Path(value).resolve().is_relative_to(folder.resolve())


def _are_at_home(models: Any, _: Path) -> bool:
    return isinstance(models, list) and all(
        str(each).strip().startswith(_AT_HOME) for each in cast("list[Any]", models)
    )


_HARMLESS_VALUES: dict[str, tuple[Callable[[Any, Path], bool], tuple[str, ...]]] = {
    "agents.*.tools": (lambda value, _: reads_only(value), ()),
    "models.tiers.local": (_are_at_home, _MODELS),
    "tools.files.root": (_is_inside, ()),
    "policy.dir": (_is_inside, ("policy",)),
    "policy.engine": (lambda value, _: value in ("cedar", "default"), ("policy",)),
    "knowledge.backend": (lambda value, _: value == "sqlite", ("knowledge",)),
}
"""Like `_HARMLESS`, but only the values that the function accepts are harmless."""

_STRICT: dict[str, Any] = {
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
    "tools.deferred": "lets others give agents the results of calls",
    "tools.commands": "lets agents start programs",
    "tools.files.root": "lets agents read another folder",
    "tools.web": "lets agents fetch from private addresses",
    "tools.github": "sends the GitHub token to a server",
    "tools.options": "says what tools are, for policies to go by",
    "mcp": "starts programs, or sends what agents say to servers",
    "models.base_urls": "sends the keys of models, and all that agents read, to a server",
    "models.endpoints": "sends what agents read, and variables of the environment, to servers",
    "models.prices": "says what models cost, by which limits in dollars go",
    "models.tiers": "decides which models the tiers mean",
    "temporal.address": "works for another Temporal server",
    "temporal": "says how a worker works for a Temporal server",
    "policy.engine": "lets policy decide nothing, or a server decide",
    "policy": "takes decisions from elsewhere",
    "notify": "reports to a server what waits for people",
    "goals.deliveries": "sends the answers of goals to files, servers and people",
    "knowledge.path": "takes the knowledge of agents from a file that others may have written",
    "knowledge": "stores what agents learn on a server, and takes their knowledge from there",
    "telemetry": "reports to a server what runs do",
    "audit": "says whose signatures count, and which key signs",
}


@dataclass(frozen=True)
class UserSettings:
    """The user's own settings, which do not come from the file."""

    variables: Sequence[tuple[Key, str]] = ()
    """The keys that the user has set, each with its variable."""
    server: str = ""
    """The Temporal server that the user has named. A worker here would serve all users of that server."""


@dataclass(frozen=True)
class Risk:
    """One key that needs trust."""

    key: Key
    value: Any
    user_setting: str = ""
    """The user's setting that makes the key a risk, or ""."""
    why: str = field(default="", kw_only=True)
    """The effect of the key. If empty, the key's own text in `_WHY` holds."""

    def __str__(self) -> str:
        """Return the risk on one line, with control characters escaped."""
        why = next((why for pattern, why in _WHY.items() if _is_below(self.key, pattern)), "changes what you have set")
        name = json.dumps(".".join(self.key))[1:-1]
        value = json.dumps(self.value, default=str)
        cut = value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}… (cut, {len(value):,} characters)"
        setting = f" (you have set {json.dumps(self.user_setting)[1:-1]})" if self.user_setting else ""
        return f"{name} = {cut}: {self.why or why}{setting}"


def risks(file: Mapping[str, Any], folder: Path, around: UserSettings | None = None) -> list[Risk]:
    """Return the risks of a file's tables, whose paths are absolute. `folder` is the file's own."""
    return list(_risks((), file, folder, around or UserSettings()))


def _risks(key: Key, value: Any, folder: Path, around: UserSettings) -> Iterator[Risk]:
    if value in ([], {}, "") or any(_fits(key, pattern) and value == strict for pattern, strict in _STRICT.items()):
        return
    judge, revoking = _harmless_check(key)
    if revoking is not None:
        if not judge(value, folder):
            yield Risk(key, value, around.server or _overriding_variable(revoking, around))
        elif around.server:
            yield Risk(
                key, value, around.server, why="holds for all runs of that server that a worker here carries out"
            )
        elif setting := _overriding_variable(revoking, around):
            yield Risk(key, value, setting)
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _risks((*key, name), inner, folder, around)
    else:
        yield Risk(key, value)


def _harmless_check(key: Key) -> tuple[Callable[[Any, Path], bool], tuple[str, ...] | None]:
    """Return which values are harmless, and the user's settings that revoke that. None instead if no value is."""
    for pattern, (judge, revoking) in _HARMLESS_VALUES.items():
        if _fits(key, pattern):
            return judge, revoking
    revoking = next((revoking for pattern, revoking in _HARMLESS.items() if _fits(key, pattern)), None)
    return lambda value, folder: True, revoking


def _overriding_variable(patterns: Sequence[str], around: UserSettings) -> str:
    """Return the variable by which the user has set one of these keys or a key below one, or ""."""
    return next(
        (variable for key, variable in around.variables if any(_is_below(key, pattern) for pattern in patterns)), ""
    )


def _is_below(key: Key, pattern: str) -> bool:
    return _fits(key[: pattern.count(".") + 1], pattern)


def _fits(key: Key, pattern: str) -> bool:
    parts = pattern.split(".")
    return len(parts) == len(key) and all(part in ("*", name) for part, name in zip(parts, key, strict=True))
