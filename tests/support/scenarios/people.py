"""The people around a run: they send what a scenario plans at the planned moments, and decide what the run asks."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.status import AgentStatus
from tests.support.hold import GIVEN_UP
from tests.support.scenarios.scenario import DENIED, HIDDEN, Act, Scenario

LIMITS = ("max_iterations", "max_total_tokens", "max_cost_usd", "max_model_calls", "max_tool_calls", "timeout_s")


class People:
    """The people of one run. Messages after its end are ignored."""

    def __init__(self, scenario: Scenario, handle: WorkflowHandle[Any, Any]) -> None:
        """Start at moment 0, before the run has a worker."""
        self._scenario = scenario
        self._handle = handle
        self._moment = -1
        self._updates: list[asyncio.Task[Any]] = []

    async def look(self) -> None:
        """Query the status while the model is called, which always works."""
        with _late():
            AgentStatus.model_validate(await self._handle.query("status"))

    async def moment(self) -> None:
        """Do everything planned for the next moment."""
        self._moment += 1
        now = self._moment  # tools run in parallel, so the next moment may come during the sending
        for number, act in enumerate(self._scenario.acts):
            if act.moment == now:
                await self._send(number, act)

    async def attend(self, ended: asyncio.Task[Any]) -> None:
        """Until the run ends: whenever it waits, find out why and give it what it needs."""
        choices = chain(self._scenario.choices, repeat("skip"))
        requeues = self._scenario.requeues
        while not ended.done():
            await asyncio.sleep(0.02)
            if not await _stands_still(self._handle):
                continue
            status = await self._status()
            if status is None:
                continue
            if status.paused:
                await self._signal("resume")
            for wait in status.waiting:
                await self.decide(wait, next(choices))
            for letter in status.dead_letters[:requeues]:
                requeues -= await self.updated("requeue", letter.letter_id)
        await asyncio.gather(*self._updates)

    async def _status(self) -> AgentStatus | None:
        """Return the status. A query that the server gave up is repeated later."""
        try:
            return AgentStatus.model_validate(await self._handle.query("status"))
        except RPCError as error:
            if error.status not in GIVEN_UP:
                raise
            return None

    async def _send(self, number: int, act: Act) -> None:
        match act.kind:
            case "extend_budget":
                self._update("extend_budget", self._raised(act.by))
            case "pause":
                await self._signal("pause")
            case "override_step":  # goals only
                skill = ("look", "pay", DENIED, HIDDEN)[number % 4]
                await self._signal("override_step", {"skill": skill, "input": {"n": 1_000 + number}})
            case _:
                await self._signal(act.kind, f"{act.kind} {number}")

    def _raised(self, by: int) -> dict[str, float]:
        config = self._scenario.config
        return {name: config[name] + by for name in LIMITS if name in config}

    async def _signal(self, name: str, *arguments: Any) -> None:
        with _late():
            await self._handle.signal(name, args=list(arguments))

    def _update(self, name: str, argument: Any) -> None:
        """Send an update in the background, because a tool that sends it must not wait for the run."""
        self._updates.append(asyncio.create_task(self.updated(name, argument)))

    async def updated(self, name: str, argument: Any) -> bool:
        """Return whether the update was accepted."""
        while True:
            try:
                await self._handle.execute_update(name, argument)  # pyright: ignore[reportUnknownMemberType]
            except WorkflowUpdateFailedError:
                return False
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return True
                if error.status != RPCStatusCode.FAILED_PRECONDITION:  # the run is continuing as new
                    raise
                continue
            return True

    async def decide(self, wait: ShownQuestion, choice: str) -> None:
        """Decide as planned. If the question does not have this choice, let the run continue."""
        if wait.kind == "budget" and choice == "extend":
            await self.updated("extend_budget", self._raised(5_000))
            return
        decision = {"escalation_id": wait.wait_id, "choice": choice, "result": f"as {wait.wait_id} wants it"}
        if not await self.updated("resolve_escalation", decision):
            await self.updated("resolve_escalation", {**decision, "choice": "skip"})


async def _stands_still(handle: WorkflowHandle[Any, Any]) -> bool:
    """Return whether nothing is in flight.

    A query that arrives with a workflow task is answered before the result of a local activity in that task is handled
    (temporalio 1.35). If more happens at that moment, a replay sees another order, so people do not query then.
    """
    found = (await handle.describe()).raw_description
    return not found.pending_activities and not found.HasField("pending_workflow_task")


@contextmanager
def _late() -> Generator[None]:
    """Ignore an error for a message after the run's end."""
    try:
        yield
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
