"""The application's own workflow: an agent finds the answer, the application files the letter."""

from datetime import timedelta

from temporalio import workflow

from orga.workflow import run_agent

with workflow.unsafe.imports_passed_through():
    from letters import Letter, file_letter


@workflow.defn
class Ticket:
    """One question of a customer."""

    @workflow.run
    async def run(self, question: str) -> str:
        """Answer it, and return the file of the letter."""
        result = await run_agent(question, agent="clerk", config={"max_iterations": 6, "timeout_s": 60})
        letter = Letter(question, result.output, needs_a_person=result.termination.reason != "completed")
        return await workflow.execute_activity(file_letter, letter, start_to_close_timeout=timedelta(seconds=10))
