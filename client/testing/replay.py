"""Replay of recorded histories against the code of today."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Plugin, Replayer
from temporalio.workflow import _Definition

from orga.client.config.sections import OrgaConfig
from orga.client.errors import OrgaError
from orga.client.history.chain import histories, run_chain
from orga.client.runners.workflows import WORKFLOWS
from orga.client.runners.wrapped import REPLAY_BUILD
from orga.client.runs.agents import AgentHandle
from orga.client.testing.differing import LastTask, difference_from
from orga.client.testing.recorded import NoHistory, recorded_history
from orga.client.workers.plugin import OrgaPlugin

Recorded = WorkflowHistory | AgentHandle | WorkflowHandle[Any, Any] | Path | str


class ReplayDiffers(AssertionError):
    """The code of today does something else than a history tells."""


async def replay(
    recorded: Recorded,
    *,
    workflows: Sequence[type[Any]] = (),
    plugins: Sequence[Plugin] = (),
    data_converter: DataConverter = DataConverter.default,
    namespace: str = "default",
) -> int:
    """Replay a history, or all in a folder, against the code of today, and return how many there were.

    Args:
        recorded: A history, a handle, the file of a history (JSON of the Temporal UI or CLI), a folder of such files.
        workflows: Your own; those of `orga` are known.
        plugins: Of your workers, where workflows need them: converters, interceptors. Agents, tools and policies say
            nothing here: what they did is in the history.
        data_converter: That your client has, where values went through a codec or an external storage of yours. A
            handle's client has its own.
        namespace: That the histories are of. A handle's client knows it.

    Raises:
        ReplayDiffers: Naming the first event that differs, and what the code does in its place.
        OrgaError: There is no history, or a workflow of a kind that is not among these.
    """
    found = await _histories(recorded)
    if client := _client_of(recorded):
        data_converter, namespace = client.data_converter, client.namespace
    ours = [] if any(isinstance(each, OrgaPlugin) for each in plugins) else [OrgaPlugin(config=OrgaConfig())]
    for place, history in found:
        _refuse_unknown(place, history, workflows)
        last = LastTask()
        replayer = Replayer(
            workflows=workflows,
            namespace=namespace,
            data_converter=data_converter,
            plugins=[*plugins, *ours, last.plugin],
            build_id=REPLAY_BUILD,
        )
        outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        if outcome.replay_failure is not None:
            told = difference_from(history, last, outcome.replay_failure)
            raise ReplayDiffers(f"{place}: {told}") from None
    return len(found)


def _client_of(recorded: Recorded) -> Client | None:
    if isinstance(recorded, AgentHandle):
        return recorded.client
    return recorded._client if isinstance(recorded, WorkflowHandle) else None


async def _histories(recorded: Recorded) -> list[tuple[str, WorkflowHistory]]:
    """Return the histories, each with what to call it."""
    if isinstance(recorded, WorkflowHistory):
        return [(recorded.workflow_id, recorded)]
    if isinstance(recorded, AgentHandle):
        runs = await histories(recorded.client, await run_chain(recorded.client, recorded.id))
        return [(recorded.id, run.history) for run in runs]
    if isinstance(recorded, WorkflowHandle):
        return [(recorded.id, await recorded.fetch_history())]
    return _read(Path(recorded))


def _read(path: Path) -> list[tuple[str, WorkflowHistory]]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise NoHistory(f"{path} has no *.json files: save histories there")
    return [(str(file), recorded_history(file)) for file in files]


def _refuse_unknown(place: str, history: WorkflowHistory, workflows: Sequence[type[Any]]) -> None:
    wanted = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    definitions = [_Definition.must_from_class(each) for each in (*workflows, *WORKFLOWS)]
    if all(each.name not in {wanted, None} for each in definitions):
        known = ", ".join(str(each.name) for each in definitions)
        raise OrgaError(
            f"{place} is of a workflow {wanted}, which is none of {known}; name its class in workflows=[...]"
        )
