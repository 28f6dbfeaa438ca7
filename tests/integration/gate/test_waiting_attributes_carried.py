"""A run that has waited for a person continues as new: the unset attributes are not carried over."""

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from orga.client.runs.agents import start_agent
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.names import AGENT, TERMINATION, WAITING, WAITING_SINCE
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import send_update

BY_A_SCHEDULE = SearchAttributeKey.for_keyword("TemporalScheduledById")
"""A search attribute that is not one of ours."""


async def test_a_run_that_has_waited_continues_as_new(client: Client) -> None:
    """The server carries an unset time as null, which no worker can read, so the run would stop."""
    await register_missing(client)
    known = WORKER_FACTS.model_copy(update={"search_attributes": True, "roll_over_events": 20})
    steps = [calls("pay"), *[calls("look", n=n) for n in range(4)], answers("done")]
    async with a_loop(client, steps, FakeTool("look"), FakeTool("pay"), engine=Asks(), setup=known) as loop:
        given = TypedSearchAttributes([SearchAttributePair(BY_A_SCHEDULE, "daily")])
        run = await start_agent(client, "do it", task_queue=loop.task_queue, search_attributes=given)
        handle = client.get_workflow_handle(run.id)
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
        shown = (await handle.describe()).typed_search_attributes
    assert len(ran.histories) > 1
    assert [shown.get(key) for key in (AGENT, BY_A_SCHEDULE, TERMINATION)] == ["default", "daily", "completed"]
    assert (WAITING in shown, WAITING_SINCE in shown) == (False, False)
