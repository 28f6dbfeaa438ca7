"""A worker in a test: starts runs, waits for their ends and questions, and returns results and journals."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from temporalio.client import WorkflowExecutionStatus, WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from orga.client.errors import NoAnswer, RunFailed
from orga.client.history.chain import histories, run_chain
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle, start_agent
from orga.client.runs.attachments import Attachable
from orga.client.runs.goals import GoalHandle, start_goal
from orga.client.testing.assertions import calls_in, last_refusal
from orga.client.testing.script import ScriptedModel, ScriptedModels, ScriptExhausted
from orga.client.workers.in_code import Agent
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.status import AgentResult, AgentStatus, JournalEntry

PATIENCE_S = 60.0
"""Real seconds in which a run has to end, or to reach its question."""

BETWEEN_LOOKS_S = 0.05

TIMED_OUT = "Workflow timed out"
"""The failure of a run that waits for a person on the test server, which skips the years until the run's timeout."""


class NotEnded(AssertionError):
    """A run did not reach in time the point that the test waits for."""


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    result: AgentResult
    journal: list[JournalEntry]
    histories: list[WorkflowHistory]
    """The histories of its segments, oldest first."""
    handle: AgentHandle

    @property
    def history(self) -> WorkflowHistory:
        """The history of the last segment. `history.to_json()` gives the content of a history file."""
        return self.histories[-1]

    @property
    def events(self) -> list[str]:
        """The names of the journal's events."""
        return [entry.event for entry in self.journal]


class AtWork:
    """A worker and the runs that it was given."""

    def __init__(self, temporal: WorkflowEnvironment, task_queue: str, models: ScriptedModels) -> None:
        self._temporal = temporal
        self.client = temporal.client
        self.task_queue = task_queue
        self._models = models
        self._started: list[AgentHandle] = []

    async def start(
        self,
        agent: Agent | str | None,
        task: AgentInput | Mapping[str, Any] | str,
        *,
        settings: Mapping[str, Any] | None = None,
        workflow_id: str | None = None,
        attachments: Sequence[Attachable] = (),
    ) -> AgentHandle:
        """Start a run. The arguments are those of `Environment.run`.

        Pictures and documents are kept in the worker's `blobs`, or in the user's state folder.

        Raises:
            InvalidInput: The text names each bad key.
        """
        given: dict[str, Any]
        if isinstance(task, AgentInput):
            given = task.model_dump(mode="json", exclude_unset=True)
        else:
            given = {"task": task} if isinstance(task, str) else dict(task)
        if agent is not None:
            given["agent"] = agent.name if isinstance(agent, Agent) else agent
        if settings is not None:
            given["config"] = settings
        handle = await start_agent(
            self.client, given, task_queue=self.task_queue, workflow_id=workflow_id, attachments=attachments
        )
        self._started.append(handle)
        return handle

    async def start_goal(self, goal: GoalInput | Mapping[str, Any] | str, **given: Any) -> GoalHandle:
        """Start a goal. The arguments are those of `orga.start_goal`."""
        handle = await start_goal(self.client, goal, task_queue=self.task_queue, **given)
        self._started.append(handle)
        return handle

    async def run(
        self,
        agent: Agent | str | None,
        task: AgentInput | Mapping[str, Any] | str,
        *,
        settings: Mapping[str, Any] | None = None,
        attachments: Sequence[Attachable] = (),
    ) -> Ran:
        """Start a run and wait for its end."""
        return await self.ended(await self.start(agent, task, settings=settings, attachments=attachments))

    async def ended(self, handle: AgentHandle, within_s: float = PATIENCE_S) -> Ran:
        """Wait for the end of a run, and read its journal and its histories.

        Raises:
            RunFailed: As for `handle.result`.
            ScriptExhausted: The run asked for more replies than the script has.
            NotEnded: The run is still live, or waits for a person.
        """
        try:
            async with asyncio.timeout(within_s):
                result = await self._result(handle)
        except TimeoutError:
            raise await self._not_ended_error(handle, f"within {within_s:g} s") from None
        except RunFailed as error:
            if TIMED_OUT not in str(error):
                raise
            raise await self._not_ended_error(handle, "until all time was skipped") from None
        self._check_scripts()
        journal = await _journal(handle)
        runs = await histories(self.client, await run_chain(self.client, handle.id))
        return Ran(result, journal, [run.history for run in runs], handle)

    async def waits(self, handle: AgentHandle, within_s: float = PATIENCE_S) -> AgentStatus:
        """Wait until a run waits for a person. Return its status with `question`, `pending_approvals` and `waiting`.

        Raises:
            NotEnded: The run does not get there in time.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    status = await _status(handle)
                    if status.waiting and await _is_recorded(handle):
                        return status
                    if status.termination is not None:
                        self._check_scripts()
                        ended = f"{handle.id} waits for nobody: it has ended ({status.termination.reason})"
                        raise NotEnded(ended + _refusal_line(await _journal(handle)))
                    await asyncio.sleep(BETWEEN_LOOKS_S)
        except TimeoutError:
            raise await self._not_ended_error(handle, f"within {within_s:g} s") from None

    async def clear(self) -> None:
        """Terminate the live runs that were started here, because a run without a worker prevents time skipping."""
        for handle in self._started:
            if (await handle.describe()).status == WorkflowExecutionStatus.RUNNING:
                await self.client.get_workflow_handle(handle.id).terminate("its test is over")

    async def _result(self, handle: AgentHandle) -> AgentResult:
        """Return the result, and allow the server to skip time until then. If it ends the wait early, wait again."""
        async with _time_skipping(self._temporal):
            while True:
                try:
                    return await handle.result()
                except RuntimeError as error:
                    if "No completion event" not in str(error):
                        raise

    def _check_scripts(self) -> None:
        models = (model for model in self._models.providers if isinstance(model, ScriptedModel))
        faults = [model.exhausted for model in models if model.exhausted]
        if faults:
            raise ScriptExhausted("\n".join(faults))

    async def _not_ended_error(self, handle: AgentHandle, when: str) -> NotEnded:
        journal = await _journal(handle)
        last = ", ".join(entry.event for entry in journal[-3:])
        made = "".join(f"\n{call}" for call in calls_in(journal))
        return NotEnded(f"{handle.id} has not got there {when}; its last events: {last}{_refusal_line(journal)}{made}")


async def _journal(handle: AgentHandle) -> list[JournalEntry]:
    return [entry async for entry in read_journal(handle.client, handle.id)]


def _refusal_line(journal: Sequence[JournalEntry]) -> str:
    refused = last_refusal(journal)
    return f"\nthe last refused proposal: {refused}" if refused else ""


def _time_skipping(temporal: WorkflowEnvironment) -> AbstractAsyncContextManager[None]:
    """Allow time skipping. The SDK does so only for its own handles, and has no public API for it."""
    unlocked = getattr(temporal, "time_skipping_unlocked", None)
    if unlocked is None or not temporal.supports_time_skipping:
        return nullcontext()
    return unlocked()


async def _status(handle: AgentHandle) -> AgentStatus:
    while True:
        try:
            return await handle.status()
        except NoAnswer:  # the worker has only just started
            await asyncio.sleep(BETWEEN_LOOKS_S)


async def _is_recorded(handle: AgentHandle) -> bool:
    """Return whether the history has everything that a query shows. A query may show state that is not recorded yet."""
    return not (await handle.describe()).raw_description.HasField("pending_workflow_task")
