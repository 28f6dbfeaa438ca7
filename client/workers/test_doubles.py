"""Replacements for the models and tools of a worker under test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.activities.models.model_calls import Models
from orga.activities.ports import Tool
from orga.workflows.types.tool_calls.tools import ToolSpec


class KnownModels(Models, Protocol):
    """Models by name, and the checks that need no call."""

    def check(self, name: str) -> None:
        """Raise ValueError for a model that cannot be called."""
        ...

    def is_priced(self, name: str) -> bool:
        """Return whether the cost of its replies will be known."""
        ...


class StandInModels(KnownModels, Protocol):
    """Models that replace all others."""

    @property
    def default(self) -> str:
        """The model of an agent that names none."""
        ...


class StandInTool(Tool, Protocol):
    """A tool that can replace another."""

    def in_place_of(self, spec: ToolSpec) -> Tool:
        """Return this tool under the definition of another."""
        ...


@dataclass(frozen=True)
class StandIns:
    """Models and tools that replace the configured ones."""

    models: StandInModels
    tools: Sequence[StandInTool] = ()

    def applied_to(self, tools: Mapping[str, Tool]) -> ToolCatalog:
        """Return the tools, with each replaced that a stand-in is named after, and with the other stand-ins added.

        Raises:
            ValueError: Two stand-ins have the same name.
        """
        by_name = ToolCatalog(self.tools)
        kept = [tool for name, tool in tools.items() if name not in by_name]
        found = [s.in_place_of(tools[s.spec.name].spec) if s.spec.name in tools else s for s in self.tools]
        return ToolCatalog([*kept, *found])
