"""Functions that return whose call it is, in a thread and in a process of their own."""

import json

from orga.activities.tools_api import ToolContext, tool


def facts_of(call: ToolContext) -> str:
    """Return the run, and the facts about the caller."""
    facts = [call.agent, call.tenant, dict(call.trusted_context), call.approver]
    return json.dumps([call.workflow_id, call.run_id, *facts])


@tool(effect="read_only")
def whose(call: ToolContext) -> str:
    """Return whose call it is."""
    return facts_of(call)


@tool(effect="read_only", blocking=True)
def whose_in_a_process(call: ToolContext) -> str:
    """Return whose call it is."""
    return facts_of(call)
