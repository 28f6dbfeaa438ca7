"""Tool profiles: which of an agent's tools a run is offered."""

import re
from collections.abc import Sequence

from pydantic import Field

from workflows.types.record import Border
from workflows.types.tools import ToolSpec


class ToolProfile(Border):
    """`tool_profile` of the config: include, then exclude, then verified, then the first `max_tools`.

    Globs know `*` and `?` alone, match whole names, and tell upper from lower case.
    """

    include: tuple[str, ...] = ()
    """Tools that match any of these; empty stands for all."""
    exclude: tuple[str, ...] = ()
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
    """Return whether a name is one of `globs`, or fits one."""
    return any(re.fullmatch(_pattern(glob), name, re.DOTALL) for glob in globs)


def is_glob(name: str) -> bool:
    """Return whether it may stand for several tools; no tool has such a name."""
    return "*" in name or "?" in name


def _pattern(glob: str) -> str:
    parts = {"*": ".*", "?": "."}
    return "".join(parts.get(character, re.escape(character)) for character in glob)
