"""Names that clients rely on."""

TASK_QUEUE = "orga"
"""Task queue of workflows and of tools that name no other."""

AGENT_WORKFLOW = "AgentWorkflow"

NOTIFY = "deliver_notification"
"""Longer than it has to be: a tool may well be called `notify`."""

OWN_ACTIVITIES = frozenset({"prepare", "reason", "gate", "summarise", "critique", NOTIFY})
"""Activities of the loop itself; no tool can have such a name."""
