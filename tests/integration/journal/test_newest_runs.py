"""Runs are listed by their start, although the server lists live runs first and ended ones by their end."""

import uuid

from temporalio.client import Client

from orga.client.runs.listing import RunFilter, listed_runs
from orga.workflows.types.names import AGENT_WORKFLOW, SESSION_WORKFLOW
from tests.support.hold import wait_until


async def test_a_limit_keeps_the_newest_runs_in_any_state(client: Client) -> None:
    queue = f"newest-{uuid.uuid4()}"

    async def begun(name: str, workflow: str = AGENT_WORKFLOW) -> str:
        await client.start_workflow(workflow, id=f"{name}-{queue}", task_queue=queue)
        return f"{name}-{queue}"

    async def end(run_id: str) -> None:
        await client.get_workflow_handle(run_id).terminate()

    async def until_listed(query: str, count: int) -> None:
        """Wait for the server's list, which lags a moment."""

        async def is_listed() -> bool:
            return len([run async for run in client.list_workflows(f"TaskQueue = '{queue}'{query}")]) == count

        await wait_until(is_listed)

    async def shown(limit: int) -> list[str]:
        found = await listed_runs(client, RunFilter(query=f"TaskQueue = '{queue}'"), limit)
        return [row.id.removesuffix(f"-{queue}") for row in found]

    idle = [await begun(name, SESSION_WORKFLOW) for name in ("s1", "s2", "s3")]
    late, early = [await begun(name) for name in ("ended-late", "ended-early")]
    await end(early)
    await end(late)
    await until_listed("", 5)
    await until_listed(" AND ExecutionStatus = 'Terminated'", 2)

    assert await shown(1) == ["ended-early"]
    assert await shown(2) == ["ended-early", "ended-late"]
    assert await shown(4) == ["ended-early", "ended-late", "s3", "s2"]
    assert await shown(20) == ["ended-early", "ended-late", "s3", "s2", "s1"]
    for run_id in idle:
        await end(run_id)
