"""Once a run is ending nobody can change that, and an attempt is an error."""

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import Hold
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import send_update
from tests.support.values.policies import a_verdict

BESIDE = WORKER_FACTS.model_copy(update={"gate_execution": "activity"})


class Slow:
    """A remote engine that is slow with the text of an ending."""

    is_embedded = False

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Allow everything."""
        if proposal.call is None:
            await self._hold.then(None)
        return a_verdict(True)


async def test_a_budget_cannot_be_raised_while_the_gathered_text_is_judged(client: Client) -> None:
    hold = Hold()
    steps = [calls("look", reply_text="I look."), answers("done")]
    async with a_loop(client, steps, FakeTool("look"), engine=Slow(hold), setup=BESIDE) as loop:
        handle = await loop.start(max_iterations=1)
        await hold.reached()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await send_update(handle, "extend_budget", {"max_iterations": 9})
        hold.go.set()
        ran = await loop.ended(handle)
    assert "the run is ending" in str(refused.value.cause)
    assert ran.result.termination.reason == "max_iterations"
