"""What stands in for models and tools of a worker that is under test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.activities.models.model_calls import Models
from orga.activities.ports import Tool
from orga.workflows.types.tool_calls.tools import ToolSpec


class KnownModels(Models, Protocol):
    """Models by name, and what is known of each before it is asked."""

    def check(self, name: str) -> None:
        """Raise ValueError for one that cannot be called."""
        ...

    def is_priced(self, name: str) -> bool:
        """Return whether the cost of its replies will be known."""
        ...


class StandInModels(KnownModels, Protocol):
    """Models that stand in for all others."""

    @property
    def default(self) -> str:
        """The name of the one that an agent has which names none."""
        ...


class StandInTool(Tool, Protocol):
    """A tool that may stand in for another."""

    def in_place_of(self, spec: ToolSpec) -> Tool:
        """Return it as a tool of that definition."""
        ...


@dataclass(frozen=True)
class StandIns:
    """Models and tools in place of the configured ones."""

    models: StandInModels
    tools: Sequence[StandInTool] = ()

    def among(self, tools: Mapping[str, Tool]) -> ToolCatalog:
        """Return these tools, with a stand-in in the place of each that it is called as, and all others beside them.

        Raises:
            ValueError: Two stand-ins have one name.
        """
        by_name = ToolCatalog(self.tools)
        kept = [tool for name, tool in tools.items() if name not in by_name]
        found = [s.in_place_of(tools[s.spec.name].spec) if s.spec.name in tools else s for s in self.tools]
        return ToolCatalog([*kept, *found])
