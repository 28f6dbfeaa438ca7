"""Workflows, activities and tools of an application that contains agents."""

from datetime import timedelta

from temporalio import activity, workflow

from orga import AgentResult, Attachment, tool
from orga.workflow import run_agent


@tool(effect="read_only")
def stock(item: str) -> str:
    """Say how many there are.

    Args:
        item: Of what.
    """
    return f"{len(item)} of {item}"


class Till:
    """An object of the application that records its calls."""

    def __init__(self) -> None:
        """Start with an empty record."""
        self.charged: list[int] = []

    @activity.defn
    async def charge(self, cents: int) -> str:
        """Take money.

        Args:
            cents: How much.
        """
        activity.heartbeat("charging")
        self.charged.append(cents)
        return f"charged {cents}"


@activity.defn
async def note_down(text: str) -> str:
    """Note something down, for the workflow alone."""
    return f"noted: {text}"


@workflow.defn
class Sale:
    """Lets an agent sell something, and notes the result."""

    @workflow.run
    async def run(self, agent: str, task: str, attachments: tuple[Attachment, ...] = ()) -> str:
        """Return the note."""
        result = await run_agent(task, agent=agent, config={"max_iterations": 4}, attachments=attachments)
        assert isinstance(result, AgentResult), "the class of the worker, not one imported again for the run"
        text = f"{result.termination.reason}: {result.output}"
        return await workflow.execute_activity(note_down, text, start_to_close_timeout=timedelta(seconds=20))
