"""Names that clients rely on."""

TASK_QUEUE = "orga"
"""Task queue of workflows and of tools that name no other."""

AGENT_WORKFLOW = "AgentWorkflow"
