"""Tools that settings name, one by one or by a glob: fallbacks of failed tools, and lookups for pre-hydration."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orga.activities.ports import AbsentTool
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolSpec, is_glob, matches_any_glob


@dataclass(frozen=True)
class NamedTool:
    """A tool and the key that names it."""

    key: str
    tool: str


def unknown_tool_lines(
    config: LoopConfig,
    offered: Iterable[ToolSpec],
    known: Mapping[str, ToolSpec],
    absent: Callable[[str], AbsentTool | None],
) -> Iterator[str]:
    """Yield a line for each key that names no tool of the worker; one that is absent for now is none of them."""
    named = [*config_tools(config), *option_tools(offered)]
    for place in named:
        missing = absent(place.tool)
        if place.tool not in known and not (missing and missing.for_now):
            yield f"{place.key}: this worker has no tool {place.tool!r}; {known_names_hint(place.tool, known)}"


def acting_lookup_faults(config: LoopConfig, known: Mapping[str, ToolSpec]) -> Iterator[tuple[str, str]]:
    """Yield key and fault of each tool that is to look references up, and does more than read.

    Nobody reviews a lookup, and the text of a task chooses what is looked up.
    """
    for place in _resolver_tools(config):
        spec = known.get(place.tool)
        if spec is not None and spec.effect != "read_only":
            yield place.key, f"{place.tool} is {spec.effect}; only a read_only tool looks references up"


def config_tools(config: LoopConfig) -> Iterator[NamedTool]:
    """Yield the tools that a config names."""
    yield from _alternative_tools("config.recovery", config.recovery)
    yield from _resolver_tools(config)


def option_tools(tools: Iterable[ToolSpec]) -> Iterator[NamedTool]:
    """Yield the tools that options of tools name."""
    for spec in tools:
        if spec.options.recovery is not None:
            yield from _alternative_tools(f"tools.options.{spec.name}.recovery", spec.options.recovery)


def _resolver_tools(config: LoopConfig) -> Iterator[NamedTool]:
    if config.pre_hydration is not None:
        for kind, tool in config.pre_hydration.resolution_tools.items():
            yield NamedTool(f"config.pre_hydration.resolution_tools.{kind}", tool)


def _alternative_tools(place: str, recovery: Recovery) -> Iterator[NamedTool]:
    for index, tool in enumerate(recovery.alternatives):
        yield NamedTool(f"{place}.alternatives.{index}", tool)


IsServerTool = Callable[[str], bool]
"""Tells whether a name or a glob begins as the names of one server's tools do."""


def is_tool_listed(tool: str, listed: Sequence[str], is_of_server: IsServerTool, *, is_own: bool) -> bool:
    """Return whether a list has the tool; `is_own` says that it belongs to the worker or to the loop.

    The worker's own `fetch_url` fits `fetch_*`, but who lists the tools of a server named `fetch` lists no others.
    """
    return any(
        matches_any_glob(tool, [each]) and not (is_own and is_glob(each) and is_of_server(each)) for each in listed
    )
