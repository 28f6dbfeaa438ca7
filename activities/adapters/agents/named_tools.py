"""Tools that settings name, singly or by glob: fallbacks of failed tools, and lookups for pre-hydration."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orga.activities.ports import AbsentTool
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolSpec, is_glob, matches_any_glob


@dataclass(frozen=True)
class NamedTool:
    key: str
    tool: str


def unknown_tool_lines(
    config: LoopConfig,
    offered: Iterable[ToolSpec],
    known: Mapping[str, ToolSpec],
    absent: Callable[[str], AbsentTool | None],
) -> Iterator[str]:
    """Yield a line for each key that names no tool of the worker. A tool that is absent for now is accepted."""
    named = [*config_tools(config), *option_tools(offered)]
    for each in named:
        missing = absent(each.tool)
        if each.tool not in known and not (missing and missing.for_now):
            yield f"{each.key}: this worker has no tool {each.tool!r}; {known_names_hint(each.tool, known)}"


def acting_lookup_faults(config: LoopConfig, known: Mapping[str, ToolSpec]) -> Iterator[tuple[str, str]]:
    """Yield the key and the error of each lookup tool that does more than read.

    Nobody reviews a lookup, and the text of a task decides what is looked up.
    """
    for each in _resolver_tools(config):
        spec = known.get(each.tool)
        if spec is not None and spec.effect != "read_only":
            yield each.key, f"{each.tool} is {spec.effect}; only a read_only tool looks references up"


def config_tools(config: LoopConfig) -> Iterator[NamedTool]:
    yield from _alternative_tools("config.recovery", config.recovery)
    yield from _resolver_tools(config)


def option_tools(tools: Iterable[ToolSpec]) -> Iterator[NamedTool]:
    for spec in tools:
        if spec.options.recovery is not None:
            yield from _alternative_tools(f"tools.options.{spec.name}.recovery", spec.options.recovery)


def _resolver_tools(config: LoopConfig) -> Iterator[NamedTool]:
    if config.pre_hydration is not None:
        for kind, tool in config.pre_hydration.resolution_tools.items():
            yield NamedTool(f"config.pre_hydration.resolution_tools.{kind}", tool)


def _alternative_tools(section: str, recovery: Recovery) -> Iterator[NamedTool]:
    for index, tool in enumerate(recovery.alternatives):
        yield NamedTool(f"{section}.alternatives.{index}", tool)


IsServerTool = Callable[[str], bool]
"""Returns whether a name or glob begins like the tools of an MCP server."""


def is_tool_listed(tool: str, listed: Sequence[str], is_of_server: IsServerTool, *, is_own: bool) -> bool:
    """Return whether a list includes the tool. `is_own` means that the tool belongs to the worker or the loop.

    The worker's own `fetch_url` matches `fetch_*`, but a glob for the tools of a server `fetch` must not include it.
    """
    return any(
        matches_any_glob(tool, [each]) and not (is_own and is_glob(each) and is_of_server(each)) for each in listed
    )
