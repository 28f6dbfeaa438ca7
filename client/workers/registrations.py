"""Lists everything that a worker registers with Temporal, and refuses parts of an application that conflict with it."""

import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, cast

from temporalio import activity, workflow
from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.worker import Interceptor, WorkerConfig

from orga.activities.adapters.repaired_json import repaired_json
from orga.activities.calls.tools import CallServices, dynamic_activity, tool_activities
from orga.activities.circuits import GuardedModels, ToolCircuits
from orga.activities.critique import CritiqueActivities
from orga.activities.deliver import DeliverActivities, NotifyActivities
from orga.activities.gate.gate import GateActivities
from orga.activities.goals import GoalActivities
from orga.activities.knowledge.recall import RecallActivities
from orga.activities.models.conversations import Conversations
from orga.activities.prepare import PastActivities, PrepareActivities, SettingsActivities
from orga.activities.reason import ReasonActivities, SummariseActivities
from orga.activities.watchdog import NamedTasks, Watchdog
from orga.client.errors import ConfigError
from orga.client.history.events import ClientHistorySource
from orga.client.history.values import FrugalPayloadConverter
from orga.client.past.fork import RunPasts
from orga.client.runners.workflows import WORKFLOWS
from orga.client.server.pollers import remember_blocked_loop
from orga.client.workers.parts import Parts
from orga.workflows.types.names import OWN_ACTIVITIES

HEARTBEAT_THROTTLE = timedelta(seconds=0.2)
"""The longest delay of a model's live text, and of an abort of a call."""

WORKFLOW_TASKS = max(8, 2 * (os.cpu_count() or 1))
"""Workflow tasks that a worker handles at the same time. The others wait on the server. All tasks share one processor
core, so a hundred would take a hundred times as long. After ten seconds the server would give them to another worker.
There are at least eight, because a task that waits for a local tool counts too."""


class _Registrations(NamedTuple):
    workflows: list[type[Any]]
    activities: list[Callable[..., Any]]
    interceptors: list[Interceptor]


def registrations(client: Client, parts: Parts, theirs: Iterable[Callable[..., Any]] = ()) -> _Registrations:
    """Return what a worker with these parts registers. Raise ValueError if a tool has the name of one of them.

    `theirs` are the activities of the application. A dynamic one of them replaces ours, unless MCP servers need ours.
    """
    circuits = ToolCircuits(parts.breakers, [tool.spec for tool in parts.tools], parts.source)
    needs_dynamic = parts.source is not None or all(_activity_name(function) is not None for function in theirs)
    activities = _activities(client, parts, needs_dynamic=needs_dynamic)
    return _Registrations(WORKFLOWS, activities, [NamedTasks(), circuits])


@asynccontextmanager
async def supporting_services(parts: Parts) -> AsyncGenerator[None]:
    """Run a worker's source of tools and the watchdog of its event loop. At the end, close its store of knowledge."""
    try:
        async with Watchdog(report=remember_blocked_loop).watch(), parts.source or nullcontext():
            yield
    finally:
        if parts.knowledge is not None:
            await parts.knowledge.close()


def _activities(client: Client, parts: Parts, *, needs_dynamic: bool) -> list[Callable[..., Any]]:
    conversations = Conversations(ClientHistorySource(client))
    models = GuardedModels(parts.models, parts.breakers, parts.model_breaker)
    goal = GoalActivities(models, conversations, parts.argument_errors, repaired_json, parts.secrets)
    services = CallServices(conversations, parts.secrets, parts.permits, parts.argument_errors, parts.blobs)
    return [
        PastActivities(RunPasts(client)).read_past,
        PrepareActivities(parts.agents, conversations).prepare,
        SettingsActivities(parts.check_settings).check_settings,
        ReasonActivities(models, conversations, parts.secrets).reason,
        *(goal.plan, goal.prepare_calls, goal.evaluate, goal.decide, goal.compress, goal.summarise),
        SummariseActivities(models, conversations, parts.secrets, parts.summarizer).summarise,
        CritiqueActivities(models, conversations, parts.secrets, parts.critics).critique,
        GateActivities(parts.policy, parts.argument_errors, parts.secrets, parts.engine, parts.permits).gate,
        RecallActivities(parts.knowledge, conversations, parts.secrets, parts.root).recall_context,
        *tool_activities(parts.tools, services),
        DeliverActivities(parts.deliveries, parts.secrets).deliver,
        *([NotifyActivities(parts.notifier, parts.secrets).notify] if parts.notifier else []),
        *([dynamic_activity(parts.source, services)] if needs_dynamic else []),
    ]


_PLAIN_CONVERTERS = (DefaultPayloadConverter, PydanticPayloadConverter)
"""Converters whose values ours can also read and write."""

ON_THE_CLIENT = "Client.connect(..., plugins=[plugin])"


def with_our_converter(converter: DataConverter) -> DataConverter:
    """Put our payload converter in place of a standard one. Raise ConfigError if the application has its own."""
    current = converter.payload_converter_class
    if issubclass(current, FrugalPayloadConverter):
        return converter
    is_of_sdk = issubclass(current, _PLAIN_CONVERTERS) and current.__module__.startswith("temporalio.")
    if current not in _PLAIN_CONVERTERS and not is_of_sdk:
        raise ConfigError(
            f"the client's payload converter {current.__qualname__} is not orga's, which its runs need; derive yours "
            "from orga.client.history.values.FrugalPayloadConverter, or do what it does in a payload codec"
        )
    return replace(converter, payload_converter_class=FrugalPayloadConverter)


def worker_client(config: WorkerConfig, plugin: Plugin) -> Client:
    """Return the client of a worker. Raise ConfigError if the client does not use our payload converter."""
    client = cast("dict[str, Client]", config)["client"]
    client_config = client.config(active_config=True)
    converter = client_config["data_converter"].payload_converter_class
    if not issubclass(converter, FrugalPayloadConverter):
        if plugin in client_config["plugins"]:
            raise ConfigError(
                f"another plugin of the client writes values by {converter.__qualname__} in place of orga's converter; "
                "put OrgaPlugin last, plugins=[..., plugin]"
            )
        raise ConfigError(f"give OrgaPlugin to the client, {ON_THE_CLIENT}: its workers take it from there")
    return client


def refuse_shared_names(
    workflows: Sequence[type[Any]],
    activities: Sequence[Callable[..., Any]],
    ours: _Registrations,
    in_code: Collection[str],
) -> None:
    """Refuse workflows and activities that have the name of one of ours, because one of the two would hide the other.

    `in_code` has the names of tools that the application gave in code.
    """
    if any(workflow_class in workflows for workflow_class in ours.workflows):
        raise ConfigError(
            f"OrgaPlugin is given twice: give it to the client alone, {ON_THE_CLIENT}, one for all agents, and do not "
            "list AgentWorkflow, GoalWorkflow or SessionWorkflow among the worker's workflows"
        )
    our_names = {_workflow_name(workflow_class) for workflow_class in ours.workflows}
    problems = [
        f"workflow {workflow_class.__qualname__}: orga has one of the name {name!r}; name yours differently, "
        '@workflow.defn(name="...")'
        for workflow_class in workflows
        if (name := _workflow_name(workflow_class)) in our_names
    ]
    problems += _activity_problems(activities, ours, in_code)
    if problems:
        raise ConfigError("\n".join(problems))


def _activity_problems(
    activities: Sequence[Callable[..., Any]], ours: _Registrations, in_code: Collection[str]
) -> Iterator[str]:
    our_names = {_activity_name(function) for function in ours.activities}
    for function in activities:
        name, label = _activity_name(function), getattr(function, "__qualname__", function)
        if name not in our_names:
            continue
        if name is None:
            yield f"activity {label}: it is dynamic, and MCP servers need the one dynamic activity; give it a name"
        elif name in in_code:
            yield (
                f"activity {label}: it is registered as {name!r}, and a tool of that name is given to agents; name "
                'the tool differently, @tool(name="..."), or leave the activity to them'
            )
        else:
            what = "an activity" if name in OWN_ACTIVITIES else "a tool"
            yield f'activity {label}: orga has {what} {name!r}; name yours differently, @activity.defn(name="...")'


def _workflow_name(kind: type[Any]) -> str | None:
    return workflow._Definition.must_from_class(kind).name


def _activity_name(function: Callable[..., Any]) -> str | None:
    return activity._Definition.must_from_callable(function).name  # pyright: ignore[reportUnknownMemberType]
