"""`max_concurrent_tools` holds exactly, however calls end, and the runs of a worker share its slots."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelRequest, ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.loop import Deny, a_loop

KINDS = ["works"] * 6 + ["fails"] * 2 + ["breaks"] * 2 + ["denied"] * 2 + ["hangs"] * 2
ALLOWED = 12
LASTING = 10
"""Calls that last until as many are in flight as allowed."""

OUTCOMES = {
    "works": ("ok", "done"),
    "fails": ("failed", "[Error] Broken: broke"),
    "breaks": ("failed", "[Error] OSError: disk"),
    "denied": ("denied", "[Policy denied] denied is forbidden"),
    "hangs": ("failed", "[Error] TimeLimit: hangs took longer than its 3 s"),
}


@dataclass
class InFlight:
    """Counts the calls that are in flight."""

    wanted: int
    durations: random.Random
    now: int = 0
    most: int = 0

    def tool(self, kind: str) -> FakeTool:
        options = ToolOptions(max_attempts=1, timeout_s=3 if kind == "hangs" else None)
        return FakeTool(kind, lambda arguments, context: self._counted(kind), options=options)

    async def _counted(self, kind: str) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._carried_out(kind)
        finally:
            self.now -= 1

    async def _carried_out(self, kind: str) -> str:
        if kind == "hangs":
            await asyncio.sleep(60)
        async with asyncio.timeout(20):
            while self.most < self.wanted:
                await asyncio.sleep(0.01)
        await asyncio.sleep(self.durations.uniform(0, 0.2))
        if kind == "fails":
            raise ToolError("broke", kind="Broken")
        if kind == "breaks":
            raise OSError("disk")
        return "done"


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("limit", [1, 2, 5, 100], ids=lambda limit: f"at most {limit}")
async def test_the_limit_holds_and_every_call_is_answered_once_in_order(client: Client, limit: int, seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(KINDS, k=len(KINDS))
    in_flight = InFlight(min(limit, LASTING), chance)
    provider = ScriptedModel([calls(*kinds), answers("went on")], repeats=True)
    async with a_loop(client, provider, *map(in_flight.tool, OUTCOMES), engine=Deny("denied")) as loop:
        ran = await loop.run(max_concurrent_tools=limit)

    assert ran.result.output == "went on"
    assert in_flight.wanted <= in_flight.most <= min(limit, ALLOWED)
    expected = [(f"{kind}_{index}", *OUTCOMES[kind]) for index, kind in enumerate(kinds)]
    results = [m for m in provider.seen[1].messages if m.role == "tool"]
    assert [(m.call_id, m.text) for m in results] == [(call_id, text) for call_id, _, text in expected]
    collected = next(entry for entry in ran.journal if entry.event == "ObservationsCollected").data["outcomes"]
    assert [o["call_id"] for o in collected] == [call_id for call_id, status, _ in expected if status != "denied"]
    assert ran.result.tool_calls.model_dump() == {"proposed": 14, "run": ALLOWED, "denied": 2, "failed": 6}


@pytest.mark.parametrize(
    ("tool_options", "worker_options"),
    [
        pytest.param(ToolOptions(), {"max_concurrent_activities": 1}, id="one slot for all activities"),
        pytest.param(
            ToolOptions(execution="local"),
            {"max_concurrent_local_activities": 1},
            id="one slot for all local activities",
        ),
    ],
)
async def test_runs_that_need_more_slots_than_the_worker_has_take_turns(
    client: Client, tool_options: ToolOptions, worker_options: dict[str, Any]
) -> None:
    running, most = 0, 0

    async def body(arguments: dict[str, Any], context: ToolContext) -> str:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.05)
        running -= 1
        return "ok"

    def asks_once(request: ModelRequest) -> Reply:
        return answers() if request.messages[-1].role == "tool" else calls(*["work"] * 5)

    tool = FakeTool("work", body, options=tool_options)
    async with a_loop(client, [asks_once], tool, **worker_options) as loop:
        rans = await asyncio.gather(*(loop.run(f"task {index}") for index in range(3)))

    assert [ran.result.tool_calls.run for ran in rans] == [5, 5, 5]
    assert most == 1
