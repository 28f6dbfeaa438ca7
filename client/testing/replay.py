"""Reads journals from a server, a history file or an export, and replays recorded histories with today's code.

If a replay fails, the error describes the first difference.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import Plugin, Replayer, ReplayerConfig
from temporalio.workflow import _Definition

from orga.client.config.sections import OrgaConfig
from orga.client.errors import OrgaError, UnreadableRun
from orga.client.history.chain import histories, run_chain
from orga.client.history.events import read_events
from orga.client.history.values import RunConverters, converters_in, require_readable
from orga.client.journal.file import read_journal_file
from orga.client.journal.reading import read_journal
from orga.client.runners.workflows import REPLAY_BUILD, WORKFLOWS, ObservedRunner
from orga.client.runs.agents import AgentHandle
from orga.client.workers.plugin import OrgaPlugin
from orga.client.workers.registrations import with_our_converter
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import one_line

_NO_HISTORY_HINT = (
    "save one in the Temporal UI (Download), or with: temporal workflow show --workflow-id ID --output json > FILE"
)


class NoHistory(OrgaError):
    """The file is not a history, or the folder has none."""


def _recorded_history(path: Path) -> WorkflowHistory:
    """Read a history file. Raise NoHistory, with a hint how to save a history, if it is not one."""
    try:
        history = WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoHistory(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # the parser of protocol buffers may raise anything
        raise NoHistory(f"{path} holds no history ({type(error).__name__}); {_NO_HISTORY_HINT}") from None
    if not history.events:
        raise NoHistory(f"{path} holds no events; {_NO_HISTORY_HINT}")
    started = history.events[0].workflow_execution_started_event_attributes
    return WorkflowHistory(started.workflow_id or path.stem, history.events)  # ids of delegates contain the id


async def journal_of(
    run: AgentHandle | WorkflowHandle[Any, Any] | WorkflowHistory | Path | str,
    *,
    data_converter: DataConverter = DataConverter.default,
    namespace: str = "default",
) -> list[JournalEntry]:
    """Return the entries so far, oldest first.

    Args:
        run: A handle, a history, a history file (JSON of the Temporal UI or CLI), or an exported journal (`.jsonl`).
        data_converter: Your client's converter, if the history's values went through your codec or external storage.
            For a handle, the converter of its client is used.
        namespace: The history's namespace, for a codec that depends on it.

    Raises:
        RunNotFound: No run has the handle's id.
        NoJournal: The `.jsonl` file is not a journal.
        OrgaError: The file is not a history.
    """
    if isinstance(run, AgentHandle):
        return [entry async for entry in read_journal(run.client, run.id)]
    if isinstance(run, WorkflowHandle):
        return [entry async for entry in read_journal(run._client, run.id)]
    if not isinstance(run, WorkflowHistory) and Path(run).suffix == ".jsonl":
        return list(read_journal_file(Path(run)).entries)
    history = run if isinstance(run, WorkflowHistory) else _recorded_history(Path(run))
    return await _fold(converters_in(history, with_our_converter(data_converter), namespace), history.events)


async def _fold(converters: RunConverters, events: Iterable[HistoryEvent]) -> list[JournalEntry]:
    fold, found = JournalFold(), list[JournalEntry]()
    async for happening in read_events(converters, events):
        found += fold.feed(happening)
    return found


MESSAGE_CHARS = 500

# parts of the SDK's error text
_MESSAGE = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"HistoryEvent\(id: (\d+)")
_NAME = re.compile(r"event '([^']*)'")
_NAMES = ("activity_type", "workflow_type", "activity_id", "timer_id", "marker_name", "signal_name")
"""Fields that name the activity, workflow, timer, marker or signal of an event."""

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


class LastTask:
    """Keeps the last workflow task of a replayer."""

    def __init__(self) -> None:
        self.events_before = 0
        """The number of events in the history before the task's own commands."""
        self.commands: Sequence[str] = ()
        self.failure = ""
        """The failure of workflow code with its file and line, or ""."""

    def observe(self, activation: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        """Record a task and the commands of workflow code. Evictions are ignored."""
        if all(job.HasField("remove_from_cache") for job in activation.jobs):
            return
        self.events_before = activation.history_length
        self.commands = [_command_text(command) for command in completion.successful.commands]
        failure = completion.failed.failure
        self.failure = failure.message
        if lines := _LINE.findall(failure.stack_trace):
            file, number = lines[-1]
            self.failure += f" ({file}:{number})"


def difference_from(history: WorkflowHistory, last: LastTask, failure: Exception) -> str:
    """Describe the first event that differs from today's code, and the commands of that code in its place."""
    if last.failure:
        return f"after event {last.events_before} today's code fails: {last.failure}"
    found = _MESSAGE.search(str(failure))
    message = one_line(found.group(1) if found else str(failure), MESSAGE_CHARS)
    event = _first_differing_event(history.events, last, message)
    if event is None:
        place = f"after event {last.events_before}"
    else:
        place = f"event {event.event_id}, {_event_text(event)}, differs"
    commands = ", ".join(last.commands) or "nothing"
    return f"{place}: today's code does {commands} in this task ({message})"


def _first_differing_event(events: Sequence[HistoryEvent], last: LastTask, message: str) -> HistoryEvent | None:
    """Return the event whose number is in the SDK's message, or the first one of the task whose name is in it."""
    if number := _NUMBER.search(message):
        return next((event for event in events if event.event_id == int(number.group(1))), None)
    names = set(_NAME.findall(message))
    events_of_task = (event for event in events if event.event_id > last.events_before)
    return next((event for event in events_of_task if names & set(_event_names(event))), None)


def _event_text(event: HistoryEvent) -> str:
    kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").title().replace("_", "")
    return " ".join((kind, *_event_names(event)[:1]))


def _event_names(event: HistoryEvent) -> list[str]:
    """Return the names in an event, such as the type of its activity or child workflow, and then its id."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    fields = (getattr(attributes, key, "") for key in _NAMES)
    names = (getattr(field, "name", field) for field in fields)  # a type is an object with a name, an id is a text
    return [str(name) for name in names if name]


def _command_text(command: Any) -> str:
    kind = command.WhichOneof("variant")
    value = getattr(command, kind)
    for key in ("activity_type", "workflow_type", "patch_id"):
        if name := getattr(value, key, ""):
            return f"{kind} {name}"
    return kind


class _TaskObserverPlugin(SimplePlugin):
    """Observes the tasks of both runners of a replayer, with and without sandbox. It must be the last plugin."""

    def __init__(self, last: LastTask) -> None:
        super().__init__("orga.testing.LastTask")  # pyright: ignore[reportUnknownMemberType]
        self._last = last

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        given = cast("dict[str, Any]", config)
        for name in ("workflow_runner", "unsandboxed_workflow_runner"):
            given[name] = ObservedRunner(given[name], self._last.observe)
        return config


Recorded = WorkflowHistory | AgentHandle | WorkflowHandle[Any, Any] | Path | str


class ReplayDiffers(AssertionError):
    """Today's code does not do what the history records."""


async def replay(
    recorded: Recorded,
    *,
    workflows: Sequence[type[Any]] = (),
    plugins: Sequence[Plugin] = (),
    data_converter: DataConverter = DataConverter.default,
    namespace: str = "default",
) -> int:
    """Replay one or more histories with today's code, and return their number.

    Args:
        recorded: A history, a handle, a history file (JSON of the Temporal UI or CLI), or a folder of such files.
        workflows: Your own workflows. The workflows of `orga` are always included.
        plugins: Plugins of your workers that workflows need, such as converters and interceptors. Agents, tools and
            policies have no effect, because the history has their outcomes.
        data_converter: Your client's converter, if values went through your codec or external storage. For a handle,
            the converter of its client is used.
        namespace: The namespace of the histories. For a handle, the namespace of its client is used.

    Raises:
        ReplayDiffers: A replay differs. The text has the first such event, and what the code does instead.
        UnreadableRun: The values went through a codec or a storage that `data_converter` does not have.
        OrgaError: There is no history, or its workflow is neither yours nor ours.
    """
    found = await _named_histories(recorded)
    if client := _client_of(recorded):
        data_converter, namespace = client.data_converter, client.namespace
    ours = [] if any(isinstance(each, OrgaPlugin) for each in plugins) else [OrgaPlugin(config=OrgaConfig())]
    for place, history in found:
        _refuse_unknown(place, history, workflows)
        await _require_readable(place, history, converters_in(history, data_converter, namespace))
        last = LastTask()
        replayer = Replayer(
            workflows=workflows,
            namespace=namespace,
            data_converter=data_converter,
            plugins=[*plugins, *ours, _TaskObserverPlugin(last)],
            build_id=REPLAY_BUILD,
        )
        outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        if outcome.replay_failure is not None:
            difference = difference_from(history, last, outcome.replay_failure)
            raise ReplayDiffers(f"{place}: {difference}") from None
    return len(found)


async def _require_readable(place: str, history: WorkflowHistory, converters: RunConverters) -> None:
    try:
        await require_readable(converters, history)
    except UnreadableRun:
        problem = "its values need the payload codec or the external storage of your client; pass data_converter="
        raise UnreadableRun(f"{place}: {problem}") from None


def _client_of(recorded: Recorded) -> Client | None:
    if isinstance(recorded, AgentHandle):
        return recorded.client
    return recorded._client if isinstance(recorded, WorkflowHandle) else None


class _NamedHistory(NamedTuple):
    place: str
    """The workflow id or the file, for errors."""
    history: WorkflowHistory


async def _named_histories(recorded: Recorded) -> list[_NamedHistory]:
    if isinstance(recorded, WorkflowHistory):
        return [_NamedHistory(recorded.workflow_id, recorded)]
    if isinstance(recorded, AgentHandle):
        runs = await histories(recorded.client, await run_chain(recorded.client, recorded.id))
        return [_NamedHistory(recorded.id, run.history) for run in runs]
    if isinstance(recorded, WorkflowHandle):
        return [_NamedHistory(recorded.id, await recorded.fetch_history())]
    return _read_histories(Path(recorded))


def _read_histories(path: Path) -> list[_NamedHistory]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise NoHistory(f"{path} has no *.json files: save histories there")
    return [_NamedHistory(str(file), _recorded_history(file)) for file in files]


def _refuse_unknown(place: str, history: WorkflowHistory, workflows: Sequence[type[Any]]) -> None:
    wanted = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    definitions = [_Definition.must_from_class(each) for each in (*workflows, *WORKFLOWS)]
    is_known = any(each.name in {wanted, None} for each in definitions)  # a dynamic workflow has no name
    if not is_known:
        known = ", ".join(str(each.name) for each in definitions)
        raise OrgaError(
            f"{place} is of a workflow {wanted}, which is none of {known}; name its class in workflows=[...]"
        )
