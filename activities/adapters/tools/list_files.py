"""The `list_files` tool."""

from typing import Any

from pydantic import Field

from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.root import (
    OMISSIONS_TEXT,
    PATTERN_DESCRIPTION,
    TIME_LIMIT_S,
    WALK_THREADS,
    FileRoot,
    FileWalk,
    path_filter,
    printable_name,
)
from orga.activities.ports import ToolContext
from orga.workflows.types.tool_calls.tools import ToolOutput, ToolSpec


class _ListParameters(Parameters):
    path: str = Field(default=".", description="Folder to list, relative to the root.")
    pattern: str | None = Field(default=None, description=PATTERN_DESCRIPTION)
    limit: int = Field(default=200, ge=1, le=1000, description="Most paths to return.")


class ListFiles:
    """Lists the files below a folder."""

    def __init__(self, root: FileRoot) -> None:
        self._root = root

    @property
    def spec(self) -> ToolSpec:
        """The tool is read-only. Its main argument is `path`."""
        return ToolSpec(
            name="list_files",
            description=f"List files, one path per line, sorted; {OMISSIONS_TEXT}.",
            parameters=_ListParameters.json_schema(),
            effect="read_only",
            main_argument="path",
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the listing. A last line in brackets shows what is missing."""
        parameters = _ListParameters.parse(arguments)
        return ToolOutput(content=await WALK_THREADS.run(self._listing, parameters))

    def _listing(self, parameters: _ListParameters) -> str:
        wanted = path_filter(parameters.pattern)
        walk = FileWalk(self._root, parameters.path)
        paths = sorted(path for path, relative in walk.files() if wanted(relative))
        lines = [printable_name(path) for path in paths[: parameters.limit]]
        if len(paths) > parameters.limit:
            lines.append(f"[{len(paths) - parameters.limit} more files not shown; narrow with path or pattern]")
        if walk.cut:
            lines.append(f"[stopped after {TIME_LIMIT_S:g} s; narrow with path]")
        return "\n".join(lines) or _no_files_text(parameters)


def _no_files_text(parameters: _ListParameters) -> str:
    matching = f" match {parameters.pattern!r}" if parameters.pattern else ""
    return f"No files{matching} in {printable_name(parameters.path)} ({OMISSIONS_TEXT})"
