"""The public API for applications and modules of tools. Each name is loaded on first use.

Nothing else is imported here, because every process imports this file.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orga import runs
    from orga.activities.tools_api import Media, ToolContext, ToolError, tool
    from orga.client.connect import connect
    from orga.client.journal.watcher import LiveActivity
    from orga.client.runs.agents import AgentHandle, start_agent
    from orga.client.runs.goals import GoalHandle, start_goal
    from orga.client.runs.sessions import SessionHandle, start_session
    from orga.client.schedules.create import create_schedule
    from orga.client.workers.in_code import ActivityTool, Agent, DeferredTool
    from orga.client.workers.plugin import OrgaPlugin
    from orga.client.workers.script import worker
    from orga.workflows.agent import AgentWorkflow
    from orga.workflows.goal import GoalWorkflow
    from orga.workflows.session import SessionWorkflow
    from orga.workflows.types.goals.goal_input import GoalConfig, GoalInput
    from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus
    from orga.workflows.types.input import AgentInput, Attachment, LoopConfig
    from orga.workflows.types.sessions.session_input import SessionInput
    from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus, TurnResult
    from orga.workflows.types.status import AgentResult, AgentStatus, JournalEntry, ShownMessage

__all__ = [
    "ActivityTool",
    "Agent",
    "AgentHandle",
    "AgentInput",
    "AgentResult",
    "AgentStatus",
    "AgentWorkflow",
    "Attachment",
    "DeferredTool",
    "GoalConfig",
    "GoalHandle",
    "GoalInput",
    "GoalResult",
    "GoalStatus",
    "GoalWorkflow",
    "JournalEntry",
    "LiveActivity",
    "LoopConfig",
    "Media",
    "OrgaPlugin",
    "SessionHandle",
    "SessionInput",
    "SessionResult",
    "SessionStatus",
    "SessionWorkflow",
    "ShownMessage",
    "ToolContext",
    "ToolError",
    "TurnResult",
    "connect",
    "create_schedule",
    "runs",
    "start_agent",
    "start_goal",
    "start_session",
    "tool",
    "worker",
]

_MODULES = {
    "ActivityTool": "orga.client.workers.in_code",
    "Agent": "orga.client.workers.in_code",
    "AgentHandle": "orga.client.runs.agents",
    "AgentInput": "orga.workflows.types.input",
    "AgentResult": "orga.workflows.types.status",
    "AgentStatus": "orga.workflows.types.status",
    "AgentWorkflow": "orga.workflows.agent",
    "Attachment": "orga.workflows.types.input",
    "DeferredTool": "orga.client.workers.in_code",
    "GoalConfig": "orga.workflows.types.goals.goal_input",
    "GoalHandle": "orga.client.runs.goals",
    "GoalInput": "orga.workflows.types.goals.goal_input",
    "GoalResult": "orga.workflows.types.goals.pursuit",
    "GoalStatus": "orga.workflows.types.goals.pursuit",
    "GoalWorkflow": "orga.workflows.goal",
    "JournalEntry": "orga.workflows.types.status",
    "LiveActivity": "orga.client.journal.watcher",
    "LoopConfig": "orga.workflows.types.input",
    "Media": "orga.activities.tools_api",
    "OrgaPlugin": "orga.client.workers.plugin",
    "SessionHandle": "orga.client.runs.sessions",
    "SessionInput": "orga.workflows.types.sessions.session_input",
    "SessionResult": "orga.workflows.types.sessions.session_result",
    "SessionStatus": "orga.workflows.types.sessions.session_result",
    "SessionWorkflow": "orga.workflows.session",
    "ShownMessage": "orga.workflows.types.status",
    "ToolContext": "orga.activities.tools_api",
    "ToolError": "orga.activities.tools_api",
    "TurnResult": "orga.workflows.types.sessions.session_result",
    "connect": "orga.client.connect",
    "create_schedule": "orga.client.schedules.create",
    "start_agent": "orga.client.runs.agents",
    "start_goal": "orga.client.runs.goals",
    "start_session": "orga.client.runs.sessions",
    "tool": "orga.activities.tools_api",
    "worker": "orga.client.workers.script",
}


def __getattr__(name: str) -> object:
    """Load a name on first use, by `__import__`, because Temporal's sandbox replaces it in workflows."""
    if name == "runs":
        return __import__("orga.runs", fromlist=[name])
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(_MODULES[name], fromlist=[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
