"""A rewind whose client dies before it releases the run is finished by the same command."""

from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.past.rewind import RunStaysFrozen, is_frozen, rewind, unfreeze
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold
from tests.support.runs.delegates import a_cast, agent, delegates, start_lead
from tests.support.runs.loop import a_loop
from tests.support.runs.rewound import wait_for_rewound


async def _dies(*_: Any, **__: Any) -> None:
    raise ConnectionError("the terminal was closed")


@pytest.mark.parametrize(
    ("iteration", "is_told"),
    [
        pytest.param(1, True, id="instructed"),
        pytest.param(1, False, id="not instructed"),
        pytest.param(2, True, id="at its answer"),
    ],
)
async def test_the_same_command_releases_a_frozen_run(
    client: Client, monkeypatch: pytest.MonkeyPatch, iteration: int, is_told: bool
) -> None:
    """Messages that people sent meanwhile are kept."""
    provider = ScriptedModel([calls("look", reply_text="step 1"), answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        first = await loop.run()
        with monkeypatch.context() as patch:
            patch.setattr("orga.client.past.rewind.unfreeze", _dies)
            if not is_told:
                patch.setattr("temporalio.client.WorkflowHandle.signal", _dies)
            with pytest.raises(ConnectionError):
                await rewind(client, first.handle.id, iteration, steer="look elsewhere")
        await first.handle.signal("steer", "sent meanwhile")
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, iteration, steer="look elsewhere"))

    assert (ran.result.output, ran.result.iterations) == ("second", iteration + 1)
    guidance = [message.text for message in provider.seen[2].messages[-2:]]
    assert sorted(guidance) == [
        "[Guidance from the operator] look elsewhere",
        "[Guidance from the operator] sent meanwhile",
    ]


async def test_a_frozen_run_can_be_rewound_further(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ScriptedModel([calls("look"), answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        first = await loop.run()
        with monkeypatch.context() as patch:
            patch.setattr("orga.client.past.rewind.unfreeze", _dies)
            with pytest.raises(ConnectionError):
                await rewind(client, first.handle.id, 1)
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 0))

    assert (ran.result.output, ran.result.iterations) == ("second", 1)


async def test_the_same_command_releases_a_run_that_waits_for_its_delegates(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold()
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper")}
    scripts = {"lead": [delegates("helper"), answers("without")], "helper": [hold.step(answers("late"))]}
    async with a_cast(client, agents, scripts) as (loop, _):
        handle = await start_lead(loop)
        await hold.reached()
        with monkeypatch.context() as patch:
            patch.setattr("orga.client.past.rewind.unfreeze", _dies)
            patch.setattr("orga.client.past.rewind.reset", _dies)
            with pytest.raises(ConnectionError):
                await rewind(client, handle.id, 0)
        assert await is_frozen(client, handle.id)
        ran = await wait_for_rewound(client, await rewind(client, handle.id, 0))

    assert ran.result.output == "without"
    assert not await is_frozen(client, handle.id)


async def test_a_server_that_does_not_release_a_run_is_reported_with_the_remedy(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: Any) -> None:
        raise RPCError("try later", RPCStatusCode.UNAVAILABLE, b"")

    monkeypatch.setattr("orga.client.past.rewind._set_options", refuses)
    with pytest.raises(RunStaysFrozen, match=r"unavailable: try later; rewind it again with the same command"):
        await unfreeze(client, "agent-1")
