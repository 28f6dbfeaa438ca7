"""The tools of a worker by name, and the built-in ones."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rapidfuzz import process

from activities.adapters.tools.fetch_url import FetchUrl
from activities.adapters.tools.list_files import ListFiles
from activities.adapters.tools.read_file import ReadFile
from activities.adapters.tools.root import Root
from activities.adapters.tools.run_command import RunCommand
from activities.adapters.tools.search_text import SearchText
from activities.adapters.tools.write_file import WriteFile
from activities.ports import Tool, ToolContext
from workflows.types.tools import ToolOptions, ToolOutput, ToolSpec


class ToolCatalog(Mapping[str, Tool]):
    """Name to tool, in the order given; a name stands for one tool only."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if self._tools.setdefault(tool.spec.name, tool) is not tool:
                raise ValueError(f"two tools are called {tool.spec.name!r}; rename or remove one")

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


class _Configured:
    """A tool with options of the config."""

    def __init__(self, tool: Tool, options: ToolOptions) -> None:
        """Lay the options over the tool's own.

        Raises:
            ValueError: They contradict the effect.
        """
        self._tool = tool
        merged = tool.spec.options.model_copy(update=options.model_dump(exclude_unset=True))
        self._spec = tool.spec.model_copy(update={"options": merged, "effect": options.effect or tool.spec.effect})
        _check(self._spec)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self._tool.call(arguments, context)


def _check(spec: ToolSpec) -> None:
    place = f"tools.options.{spec.name}"
    if spec.effect == "irreversible" and (spec.options.max_attempts or 1) > 1:
        raise ValueError(
            f'{place}.max_attempts: an irreversible tool has one attempt; set effect = "idempotent" if it is'
        )
    if spec.effect != "read_only" and spec.options.execution == "local":
        raise ValueError(f'{place}.execution: only a read_only tool can run inside the workflow task; leave "activity"')


def with_options(tools: Iterable[Tool], options: Mapping[str, ToolOptions]) -> list[Tool]:
    """Return the tools with the options that are set for them; what is not set stays the tool's own.

    Raises:
        ValueError: When options name no tool of `tools`, with the nearest name, or contradict a tool's effect.
    """
    listed = list(tools)
    names = [tool.spec.name for tool in listed]
    for name in options:
        if name not in names:
            raise ValueError(f"options for {name!r}: there is no such tool{_nearest(name, names)}")
    return [_Configured(t, options[t.spec.name]) if t.spec.name in options else t for t in listed]


def builtin_tools(
    root: Path,
    *,
    allow_hosts: Collection[str] = (),
    commands: Collection[str] = (),
    options: Mapping[str, ToolOptions] | None = None,
) -> list[Tool]:
    """Return the built-in tools; `run_command` is among them only when `commands` lists a program."""
    files = Root(root)
    tools: list[Tool] = [ListFiles(files), SearchText(files), ReadFile(files), WriteFile(files), FetchUrl(allow_hosts)]
    if commands:
        tools.append(RunCommand(files, commands))
    return with_options(tools, options or {})


def _nearest(name: str, names: list[str]) -> str:
    found = process.extractOne(name, names, score_cutoff=60)
    return f"; did you mean {found[0]!r}?" if found else f"; there are {', '.join(names)}"
