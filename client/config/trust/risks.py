"""What a configuration would do that somebody has to want: run code, widen tools or policy, name another server."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from orga.workflows.types.agents import READ_ONLY_TOOLS

Key = tuple[str, ...]
_MAX_SHOWN = 300

_HARMLESS: tuple[str, ...] = (
    "temporal.task_queue",
    "temporal.roll_over_events",
    "agents.*.description",
    "agents.*.model",
    "agents.*.instructions",
    "agents.*.delegates",
    "agents.*.decisions",
    "agents.*.critics",
    "agents.*.config",
    "models.default",
    "models.breaker",
    "models.tiers",
    "goals.tiers",
    "goals.prompts",
    "pipelines.*",
    "knowledge.embedder",
    "tools.github.repo",
    "tools.commands.sandbox",
    "tools.options.*.timeout_s",
    "tools.options.*.heartbeat_timeout_s",
    "tools.options.*.max_attempts",
    "tools.options.*.initial_interval_s",
    "tools.options.*.backoff_coefficient",
    "tools.options.*.max_interval_s",
    "tools.options.*.non_retryable",
    "tools.options.*.isolation",
    "tools.options.*.recovery",
    "tools.options.*.breaker",
    "tools.options.*.max_result_bytes",
    "policy.surface",
    "policy.opa.path",
    "policy.opa.timeout_s",
    "notify.events",
    "notify.format",
    "telemetry.enabled",
    "telemetry.service_name",
    "telemetry.export_interval_s",
)
"""All else asks: a key that is new is not forgotten here."""

_SAFE_TOOLS = {*READ_ONLY_TOOLS, "terminate"}


def _is_inside(value: Any, folder: Path) -> bool:
    return isinstance(value, str) and Path(value).resolve().is_relative_to(folder.resolve())


_HARMLESS_VALUES: dict[str, Callable[[Any, Path], bool]] = {
    "agents.*.tools": lambda value, _: isinstance(value, list) and all(tool in _SAFE_TOOLS for tool in value),  # pyright: ignore[reportUnknownVariableType]
    "tools.files.root": _is_inside,
    "tools.options.*.approval": lambda value, _: value is True,
    "policy.dir": _is_inside,
    "policy.engine": lambda value, _: value in ("cedar", "default"),
    "knowledge.backend": lambda value, _: value == "sqlite",
}

_WHY: dict[str, str] = {
    "agents.*.tools": "gives an agent tools that do more than read this folder",
    "tools.python": "runs Python code of this folder",
    "tools.manifests": "makes tools of programs, and of requests that may carry secrets of the environment",
    "tools.commands": "lets agents start programs",
    "tools.files.root": "lets agents read another folder",
    "tools.web": "lets agents fetch from private addresses",
    "tools.github": "sends the GitHub token to a server",
    "tools.options": "says what tools are, for policies to go by",
    "mcp": "starts programs, or sends what agents say to servers",
    "models.base_urls": "sends the keys of models, and all that agents read, to a server",
    "models.prices": "says what models cost, by which limits in dollars go",
    "temporal": "works for another Temporal server",
    "policy.engine": "lets policy decide nothing, or a server decide",
    "policy": "takes decisions from elsewhere",
    "notify": "tells a server what waits for people",
    "goals.deliveries": "sends the answers of goals to files, servers and people",
    "knowledge.path": "takes what agents are told from a file that others may have written",
    "knowledge": "gives a server what agents learn, and takes what they are told from there",
    "telemetry": "tells a server what runs do",
    "audit": "says whose signatures count, and which key signs",
}


@dataclass(frozen=True)
class Risk:
    """One key that asks."""

    key: Key
    value: Any

    def __str__(self) -> str:
        """Return it on one line, whatever stands in it."""
        name = json.dumps(".".join(self.key))[1:-1]
        value = json.dumps(self.value, default=str)
        cut = value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}… (cut, {len(value):,} characters)"
        return f"{name} = {cut}: {_why(self.key)}"


def risks(file: Mapping[str, Any], folder: Path) -> list[Risk]:
    """Return what asks, of a file's tables with its paths made absolute; `folder` is the file's own."""
    return list(_risks((), file, folder))


def _risks(key: Key, value: Any, folder: Path) -> Iterator[Risk]:
    judge = next((judge for pattern, judge in _HARMLESS_VALUES.items() if _fits(key, pattern)), None)
    if any(_fits(key, pattern) for pattern in _HARMLESS) or value in ([], {}, ""):
        return
    if judge is not None:
        if not judge(value, folder):
            yield Risk(key, value)
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _risks((*key, name), inner, folder)
    else:
        yield Risk(key, value)


def _why(key: Key) -> str:
    return next((why for pattern, why in _WHY.items() if _fits(key[: pattern.count(".") + 1], pattern)), "asks")


def _fits(key: Key, pattern: str) -> bool:
    parts = pattern.split(".")
    return len(parts) == len(key) and all(part in ("*", name) for part, name in zip(parts, key, strict=True))
