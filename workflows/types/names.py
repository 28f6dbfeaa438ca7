"""Names that clients rely on."""

TASK_QUEUE = "orga"
"""Task queue of workflows and of tools that name no other."""

AGENT_WORKFLOW = "AgentWorkflow"

NOTIFY = "deliver_notification"
"""Longer than it has to be: a tool may well be called `notify`."""

READ_PAST = "read_past"
"""Reads the past of a fork from the history of the run whose past it is."""

OWN_ACTIVITIES = frozenset({"prepare", READ_PAST, "reason", "gate", "summarise", "critique", NOTIFY})
"""Activities of the loop itself; no tool can have such a name."""
