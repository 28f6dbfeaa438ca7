"""Tool profiles: which of an agent's tools a run is offered."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from workflows.types.record import Border
from workflows.types.tools import ToolSpec

MAX_GLOBS = 200

Glob = Annotated[str, Field(max_length=200)]


class ToolProfile(Border):
    """`tool_profile` of the config: include, then exclude, then verified, then the first `max_tools`.

    Globs know `*` and `?` alone, match whole names, and tell upper from lower case.
    """

    include: tuple[Glob, ...] = Field(default=(), max_length=MAX_GLOBS)
    """Tools that match any of these; empty stands for all."""
    exclude: tuple[Glob, ...] = Field(default=(), max_length=MAX_GLOBS)
    require_verified: bool = False
    """Only tools that the operator vouches for: the built-in ones, and those whose options say `verified`."""
    max_tools: int | None = Field(default=None, ge=0, le=1_000)

    def visible(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered, in their order."""
        kept = [
            tool
            for tool in tools
            if (not self.include or matches(tool.name, self.include))
            and not matches(tool.name, self.exclude)
            and (tool.options.verified or not self.require_verified)
        ]
        return tuple(kept[: self.max_tools])


def include_only(*names: str) -> ToolProfile:
    """Return a profile of these tools alone."""
    return ToolProfile(include=names)


def exclude_only(*names: str) -> ToolProfile:
    """Return a profile of all tools but these."""
    return ToolProfile(exclude=names)


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a name is one of `globs`, or fits one; in time linear in each glob times the name."""
    return any(_fits(name, glob) for glob in globs)


def is_glob(name: str) -> bool:
    """Return whether it may stand for several tools; no tool has such a name."""
    return "*" in name or "?" in name


def _fits(name: str, glob: str) -> bool:
    """Go through both; where they part, the last star takes one character more. No star before it has to be tried."""
    at = in_glob = 0
    star, taken = -1, 0
    while at < len(name):
        if in_glob < len(glob) and glob[in_glob] == "*":
            star, taken = in_glob, at
            in_glob += 1
        elif in_glob < len(glob) and glob[in_glob] in ("?", name[at]):
            at, in_glob = at + 1, in_glob + 1
        elif star >= 0:
            taken += 1
            at, in_glob = taken, star + 1
        else:
            return False
    return not glob[in_glob:].strip("*")
