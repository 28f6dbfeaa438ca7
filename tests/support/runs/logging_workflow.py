"""A workflow that logs, waits for a local activity, and logs again."""

from datetime import timedelta

from temporalio import workflow


@workflow.defn(name="Logging")
class LoggingWorkflow:
    """Logs around a timer, so that its second workflow task replays the first if nothing is cached."""

    @workflow.run
    async def run(self) -> None:
        """Log, wait, and log again."""
        workflow.logger.info("before %d", 1)
        await workflow.sleep(timedelta(milliseconds=1))
        workflow.logger.info("after")
