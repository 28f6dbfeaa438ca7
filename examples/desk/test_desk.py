"""The desk, tested with `orga.testing`: its agent, its policy, and its own workflow. See docs/testing.md."""

import uuid
from pathlib import Path
from typing import Any

import letters
import pytest
from app import CLERK, HERE
from letters import file_letter
from ticket import Ticket

from orga import Agent
from orga.testing import Environment, FakeTool, answers, assert_called, assert_denied, calls, replay, scripted

pytestmark = pytest.mark.anyio

DESK: dict[str, Any] = {"policy": HERE / "policies", "root": HERE / "handbook"}


@pytest.fixture
def anyio_backend() -> str:
    """Run the tests by asyncio, as Temporal needs it."""
    return "asyncio"


def letter_in(outbox: Path) -> str:
    """Return the one letter that was filed."""
    (letter,) = outbox.iterdir()
    return letter.read_text(encoding="utf-8")


async def test_the_clerk_reads_the_order_and_the_handbook(orga_environment: Environment) -> None:
    """The order that the question names is looked up before the model is asked."""
    orders = FakeTool("look_up_order", "ORD-7: two lamps, sent on Monday by parcel")
    model = scripted(calls("search_text", query="parcel"), answers("On Thursday (delivery.md)."))
    ran = await orga_environment.run(CLERK, "When does ORD-7 arrive?", model=model, fakes=[orders], **DESK)
    assert ran.result.output == "On Thursday (delivery.md)."
    assert orders.calls == [{"order": "ORD-7"}]
    assert any("two lamps" in message.text for message in model.seen[0].messages)
    assert_called(ran.journal, "search_text", times=1)


async def test_the_policy_lets_nobody_write(orga_environment: Environment) -> None:
    """Not even an agent that lists the tool."""
    pen = FakeTool("write_file")
    model = scripted(calls("write_file", path="returns.md", content="none"), answers("I only read."))
    scribe = Agent("scribe", tools=["write_file"])
    ran = await orga_environment.run(scribe, "Change it.", model=model, fakes=[pen], **DESK)
    assert_denied(ran.journal, "write_file")
    assert pen.calls == []


async def test_a_ticket_is_answered_and_filed(
    orga_environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application's own workflow, with the agent as its child; its history replays."""
    monkeypatch.setattr(letters, "OUTBOX", tmp_path)
    model = scripted(answers("On Thursday."))
    worker = orga_environment.worker(agents=[CLERK], model=model, workflows=[Ticket], activities=[file_letter], **DESK)
    async with worker as at_work:
        handle = await at_work.client.start_workflow(
            Ticket.run, "When does it arrive?", id=f"ticket-{uuid.uuid4()}", task_queue=at_work.task_queue
        )
        await handle.result()
        assert await replay(handle, workflows=[Ticket]) == 1
    assert letter_in(tmp_path).endswith("On Thursday.\n")
