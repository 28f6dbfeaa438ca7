"""The questions of a run, and the replies that its model read."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from orga.testing import ScriptedModel
from tests.support.hold import PATIENCE_S, wait_until
from tests.support.runs.loop import WORKER_FACTS, Loop

ANSWER_WITHIN = timedelta(seconds=5)
"""The time-skipping server forgets a query whose run continues as new meanwhile, so the query is repeated."""


async def wait_for_question(handle: WorkflowHandle[Any, Any], within_s: float = PATIENCE_S) -> dict[str, Any]:
    """Return the first question of a run, once it asks."""
    found: list[dict[str, Any]] = []

    async def asks() -> bool:
        found[:] = (await handle.query("status", rpc_timeout=ANSWER_WITHIN))["waiting"]
        return bool(found) and await is_on_record(handle)

    await wait_until(asks, within_s)
    return found[0]


async def is_on_record(handle: WorkflowHandle[Any, Any]) -> bool:
    """Return whether the state shown by a query is in the history.

    A query may show more than the server has recorded.
    """
    return not (await handle.describe()).raw_description.HasField("pending_workflow_task")


async def wait_until_still(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a paused run has reached the next phase without starting it."""

    async def is_still() -> bool:
        return (await handle.query("status"))["phase"] == "paused"

    await wait_until(is_still)


async def wait_for_note(handle: WorkflowHandle[Any, Any], event: str) -> None:
    """Wait until the latest decision noted by a run is of this kind."""

    async def is_noted() -> bool:
        return event in str(await (await handle.describe()).memo())

    await wait_until(is_noted)


def tool_results_in(loop: Loop, call: int = 1) -> list[str]:
    """Return the tool results in a request to the model."""
    assert isinstance(loop.provider, ScriptedModel)
    return [message.text for message in loop.provider.seen[call].messages if message.role == "tool"]


async def send_update(handle: WorkflowHandle[Any, Any], name: str, argument: Any) -> Any:
    """Send an update and return its answer."""
    return await handle.execute_update(name, argument)  # pyright: ignore[reportUnknownMemberType]


SHORT = WORKER_FACTS.model_copy(update={"roll_over_events": 60})
"""Some ten signals fill such a history."""


async def steer_until_continued(handle: WorkflowHandle[Any, Any]) -> None:
    """Send guidance until the run has continued as new."""
    first = (await handle.describe()).run_id

    async def has_rolled_over() -> bool:
        if (await handle.describe()).run_id == first:
            await handle.signal("steer", "a note")
        return (await handle.describe()).run_id != first

    await wait_until(has_rolled_over)
