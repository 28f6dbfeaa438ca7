"""The public API: what applications and modules of tools import, each loaded when it is first asked for.

Nothing else is imported here: every process of ours, and every run's sandbox, passes through this file.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orga.activities.tools_api import ToolContext, ToolError, tool
    from orga.client.connect import connect
    from orga.client.runs.agents import start_agent
    from orga.client.runs.goals import start_goal
    from orga.client.schedules.create import create_schedule
    from orga.workflows.agent import AgentWorkflow
    from orga.workflows.types.input import AgentInput, LoopConfig
    from orga.workflows.types.status import AgentResult

__all__ = [
    "AgentInput",
    "AgentResult",
    "AgentWorkflow",
    "LoopConfig",
    "ToolContext",
    "ToolError",
    "connect",
    "create_schedule",
    "start_agent",
    "start_goal",
    "tool",
]

_PLACES = {
    "AgentInput": "orga.workflows.types.input",
    "AgentResult": "orga.workflows.types.status",
    "AgentWorkflow": "orga.workflows.agent",
    "LoopConfig": "orga.workflows.types.input",
    "ToolContext": "orga.activities.tools_api",
    "ToolError": "orga.activities.tools_api",
    "connect": "orga.client.connect",
    "create_schedule": "orga.client.schedules.create",
    "start_agent": "orga.client.runs.agents",
    "start_goal": "orga.client.runs.goals",
    "tool": "orga.activities.tools_api",
}


def __getattr__(name: str) -> object:
    """Load what is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
