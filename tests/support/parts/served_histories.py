"""A client whose server has recorded histories: one run, of one or more segments."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseResponse
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from orga.client.history.values import data_converter


class HistoryClient(Client):
    """Serves segments, oldest first. Their run ids are `segment-0`, `segment-1`, and so on."""

    def __init__(self, *segments: WorkflowHistory, converter: DataConverter = data_converter) -> None:
        self._config: Any = {"data_converter": converter, "namespace": "default"}
        self.segments: dict[str, list[HistoryEvent]] = {}
        self.reads: list[str] = []
        """The segments that were read to their end, in order."""
        for index, segment in enumerate(segments):
            events = [HistoryEvent.FromString(event.SerializeToString()) for event in segment.events]
            started = events[0].workflow_execution_started_event_attributes
            if index or started.continued_execution_run_id:
                started.continued_execution_run_id = f"segment-{index - 1}"
            self.segments[f"segment-{index}"] = events
        self.workflow_id = segments[0].workflow_id

    def delete_oldest(self) -> None:
        del self.segments[min(self.segments)]

    @property
    def workflow_service(self) -> Any:
        return SimpleNamespace(get_workflow_execution_history_reverse=self._reversed)

    async def _reversed(self, request: Any, *, retry: bool) -> GetWorkflowExecutionHistoryReverseResponse:
        found = GetWorkflowExecutionHistoryReverseResponse()
        found.history.events.extend(reversed(self.segments[request.execution.run_id]))
        return found

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None = None, **_: Any) -> Any:
        found = run_id or max(self.segments)

        async def events(page_size: int = 0, **_: Any) -> AsyncGenerator[HistoryEvent]:
            if found not in self.segments or workflow_id != self.workflow_id:
                raise RPCError("no such run", RPCStatusCode.NOT_FOUND, b"")
            for event in self.segments[found][: page_size or None]:
                yield event
            if not page_size:
                self.reads.append(found)

        async def describe() -> Any:
            if workflow_id != self.workflow_id:
                raise RPCError("no such run", RPCStatusCode.NOT_FOUND, b"")
            started = self.segments[found][0].workflow_execution_started_event_attributes
            length = len(self.segments[found])
            return SimpleNamespace(run_id=found, workflow_type=started.workflow_type.name, history_length=length)

        return SimpleNamespace(fetch_history_events=events, describe=describe)


def without_end(history: WorkflowHistory, events: int) -> WorkflowHistory:
    """Return the history as it was after this many events."""
    return WorkflowHistory(history.workflow_id, list(history.events)[:events])
