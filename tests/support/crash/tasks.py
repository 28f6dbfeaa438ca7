"""Moments of a workflow task: its jobs before workflow code sees them, and its commands before they are reported."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from orga.workflows.types.control import NOTES_MEMO

P = ParamSpec("P")
T = TypeVar("T")


class WatchedTasks(ThreadPoolExecutor):
    """Runs workflow tasks and reports the moments of each. A replay has no moments."""

    def __init__(self, reached: Callable[[str], None], effects: Path) -> None:
        super().__init__()
        self._reached = reached
        self._effects = effects

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        task = next((argument for argument in args if isinstance(argument, WorkflowActivation)), None)
        if task is None or task.is_replaying:
            return super().submit(fn, *args, **kwargs)
        for moment in self._moments_of_jobs(task):
            self._reached(moment)

        def watched() -> T:
            made = fn(*args, **kwargs)
            if isinstance(made, WorkflowActivationCompletion):
                for moment in self._moments_of_commands(made):
                    self._reached(moment)
            return made

        return super().submit(watched)

    def _moments_of_jobs(self, task: WorkflowActivation) -> Iterator[str]:
        for job in task.jobs:
            if job.HasField("initialize_workflow"):
                if job.initialize_workflow.continued_from_execution_run_id:
                    yield "continued as new"
                    yield f"continued as new after {self._latest()}"
                else:
                    yield "first task"
            if job.HasField("resolve_activity"):
                yield f"after {self._latest()}"
            if job.HasField("do_update"):
                yield f"asked to {job.do_update.name}"

    def _moments_of_commands(self, made: WorkflowActivationCompletion) -> Iterator[str]:
        for command in made.successful.commands:
            if command.HasField("continue_as_new_workflow_execution"):
                yield f"continuing as new after {self._latest()}"
            memo = command.modify_workflow_properties.upserted_memo.fields
            if NOTES_MEMO in memo:
                for note in json.loads(memo[NOTES_MEMO].data):
                    yield f"noting {note['event']}"

    def _latest(self) -> str:
        """Return the tool with the latest effect."""
        lines = self._effects.read_text().splitlines() if self._effects.exists() else []
        return lines[-1].split()[0] if lines else ""
