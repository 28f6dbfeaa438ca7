"""The catalog of a worker's tools by name, the options from its configuration, and the list of built-in tools."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from orga.activities.adapters.rules import NO_RULES, Rules
from orga.activities.adapters.tools.fetch_url import FetchUrl
from orga.activities.adapters.tools.file_changes import EditFile, EditRecords, WriteFile
from orga.activities.adapters.tools.file_search import ListFiles, SearchText
from orga.activities.adapters.tools.github import GitHubApi, GitHubSettings, ReadIssue, ReadPullRequest
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import files_root
from orga.activities.adapters.tools.run_command import RunCommand
from orga.activities.ports import Tool, ToolContext
from orga.workflows.types.json_text import FINAL_ANSWER
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS
from orga.workflows.types.tool_calls.sandbox import Sandbox
from orga.workflows.types.tool_calls.tools import MAX_LOCAL_TIMEOUT_S, ToolOptions, ToolOutput, ToolSpec

RESERVED_NAMES = {*LOOP_TOOLS, FINAL_ANSWER}
"""The names of the loop's own calls. No tool may have them."""


class ToolCatalog(dict[str, Tool]):
    """Tools by name, in the given order. Raises ValueError if two tools share a name, or a name is reserved."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        super().__init__()
        for tool in tools:
            if tool.spec.name in RESERVED_NAMES:
                raise ValueError(f"a tool is called {tool.spec.name!r}, a name that belongs to the loop; rename it")
            if self.setdefault(tool.spec.name, tool) is not tool:
                raise ValueError(f"two tools are called {tool.spec.name!r}; rename or remove one")


class ToolWithSpec:
    """A tool with another definition than its own."""

    def __init__(self, tool: Tool, spec: ToolSpec) -> None:
        self._tool = tool
        self.spec = spec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self._tool.call(arguments, context)


def _check_options(spec: ToolSpec) -> None:
    """Raise ValueError if the options contradict the effect, or what can run inside the workflow task."""
    section, options = f"tools.options.{spec.name}", spec.options
    if spec.effect == "irreversible" and (options.max_attempts or 1) > 1:
        why = 'an irreversible tool has one attempt; set effect = "idempotent" if it is'
        raise ValueError(f"{section}.max_attempts: {why}")
    if options.execution != "local":
        return
    if spec.effect != "read_only":
        why = 'only a read_only tool can run inside the workflow task; leave "activity"'
        raise ValueError(f"{section}.execution: {why}")
    if options.timeout_s and options.timeout_s > MAX_LOCAL_TIMEOUT_S:
        raise ValueError(
            f"{section}.timeout_s: {options.timeout_s:g} s, but no abort is handled while a call runs inside the "
            f'workflow task; set at most {MAX_LOCAL_TIMEOUT_S:g}, or execution = "activity"'
        )


def with_options(tools: Iterable[Tool], options: Mapping[str, ToolOptions]) -> list[Tool]:
    """Return the tools with the configured options. An option that is not configured keeps the tool's own value.

    Raise ValueError if `options` has an unknown tool (the text suggests the nearest name) or contradicts an effect.
    """
    listed = list(tools)
    names = [tool.spec.name for tool in listed]
    for name in options:
        if name not in names:
            raise ValueError(f"options for {name!r}: there is no such tool; {known_names_hint(name, names)}")
    return [_configured_tool(t, options[t.spec.name]) if t.spec.name in options else t for t in listed]


def _configured_tool(tool: Tool, options: ToolOptions) -> Tool:
    if options.isolation is None:
        return _with_overrides(tool, options)
    key = f"tools.options.{tool.spec.name}.isolation"
    if not isinstance(tool, PythonFunction):
        raise ValueError(f"{key}: only a Python function can be put into a {options.isolation}; remove it")  # noqa: TRY004
    try:
        tool = tool.with_isolation(options.isolation)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
    return _with_overrides(tool, options)


def _with_overrides(tool: Tool, options: ToolOptions) -> Tool:
    """Return the tool with the options that are set. Raise ValueError if the result contradicts the tool's effect."""
    spec = tool.spec.with_options(tool.spec.options.with_overrides(options))
    spec = spec.with_effect(options.effect or spec.effect)
    _check_options(spec)
    return ToolWithSpec(tool, spec)


def builtin_tools(
    root: Path,
    *,
    allow_hosts: Collection[str] = (),
    commands: Collection[str] = (),
    sandbox: Sandbox | None = None,
    github: GitHubSettings | None = None,
    rules: Rules = NO_RULES,
    edits: Path | None = None,
) -> list[Tool]:
    """Return the built-in tools. They include `run_command` only if `commands` lists a program.

    `edits` is the path of the database of edits. Without it, a process does not know the edits of an earlier process.
    """
    files = files_root(root, rules)
    tools: list[Tool] = [ListFiles(files), SearchText(files), ReadFile(files), WriteFile(files)]
    tools += [EditFile(files, EditRecords(edits)), FetchUrl(allow_hosts)]
    settings = github or GitHubSettings()
    api = GitHubApi(settings)
    tools += [ReadIssue(api, settings.repo), ReadPullRequest(api, settings.repo)]
    if commands:
        tools.append(RunCommand(files, commands, sandbox=sandbox))
    return [_with_overrides(tool, ToolOptions(verified=True)) for tool in tools]


@cache
def builtin_specs() -> Mapping[str, ToolSpec]:
    """Return the definitions of all built-in tools without configuration, by name."""
    return {tool.spec.name: tool.spec for tool in builtin_tools(Path.cwd(), commands=("true",))}
