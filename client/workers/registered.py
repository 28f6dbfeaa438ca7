"""Everything a worker registers with Temporal, in one list."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any, NamedTuple

from temporalio.client import Client
from temporalio.worker import Interceptor

from orga.activities.adapters.repaired_json import repaired_json
from orga.activities.calls.tools import source_activity, tool_activities
from orga.activities.check_settings import SettingsActivities
from orga.activities.circuits import GuardedModels, ToolCircuits
from orga.activities.critique import CritiqueActivities
from orga.activities.deliver import DeliverActivities, NotifyActivities
from orga.activities.gate.gate import GateActivities
from orga.activities.goals import GoalActivities
from orga.activities.knowledge.recall import RecallActivities
from orga.activities.models.conversations import Conversations
from orga.activities.prepare import PastActivities, PrepareActivities
from orga.activities.reason import ReasonActivities, SummariseActivities
from orga.activities.watchdog import NamedTasks, Watchdog
from orga.client.history.events import WorkflowHistory
from orga.client.past.fork import RunPasts
from orga.client.runners.workflows import WORKFLOWS
from orga.client.server.pollers import remember_blocked_loop
from orga.client.workers.parts import Parts

HEARTBEAT_THROTTLE = timedelta(seconds=0.2)
"""The age that a model's live text may reach, and the delay until an abort takes effect."""

WORKFLOW_TASKS = max(8, 2 * (os.cpu_count() or 1))
"""Workflow tasks at a time. The server keeps the others. They share this process's processor, so each of a hundred
would take a hundred times as long, and a task that takes ten seconds is given to another worker and repeated. The
minimum is eight, because a task that waits for a local tool keeps its place."""


class Registrations(NamedTuple):
    workflows: list[type[Any]]
    activities: list[Callable[..., Any]]
    interceptors: list[Interceptor]


def registrations(client: Client, parts: Parts) -> Registrations:
    """Raise ValueError if a tool has the name of one of our activities."""
    circuits = ToolCircuits(parts.breakers, [tool.spec for tool in parts.tools], parts.source)
    return Registrations(WORKFLOWS, _activities(client, parts), [NamedTasks(), circuits])


@asynccontextmanager
async def supporting_services(parts: Parts) -> AsyncGenerator[None]:
    """Run what a worker needs besides: its source of tools, its store, and the watchdog of its event loop."""
    try:
        async with Watchdog(report=remember_blocked_loop).watch(), parts.source or nullcontext():
            yield
    finally:
        if parts.knowledge is not None:
            await parts.knowledge.close()


def _activities(client: Client, parts: Parts) -> list[Callable[..., Any]]:
    conversations = Conversations(WorkflowHistory(client))
    models = GuardedModels(parts.models, parts.breakers, parts.model_breaker)
    return [
        PastActivities(RunPasts(client)).read_past,
        PrepareActivities(parts.agents, conversations).prepare,
        SettingsActivities(parts.check_settings).check_settings,
        ReasonActivities(models, conversations, parts.secrets).reason,
        *_goal_turns(GoalActivities(models, conversations, parts.argument_errors, repaired_json, parts.secrets)),
        SummariseActivities(models, conversations, parts.secrets, parts.summarizer).summarise,
        CritiqueActivities(models, conversations, parts.secrets, parts.critics).critique,
        GateActivities(parts.policy, parts.argument_errors, parts.secrets, parts.engine, parts.permits).gate,
        RecallActivities(parts.knowledge, conversations, parts.secrets, parts.root).recall_context,
        *tool_activities(
            parts.tools, conversations, parts.secrets, parts.permits, parts.argument_errors, blobs=parts.blobs
        ),
        DeliverActivities(parts.deliveries, parts.secrets).deliver,
        *([NotifyActivities(parts.notifier, parts.secrets).notify] if parts.notifier else []),
        *(
            [
                source_activity(
                    parts.source,
                    conversations,
                    parts.secrets,
                    parts.permits,
                    parts.argument_errors,
                    blobs=parts.blobs,
                )
            ]
            if parts.source
            else []
        ),
    ]


def _goal_turns(goal: GoalActivities) -> list[Callable[..., Any]]:
    return [goal.plan, goal.prepare_calls, goal.evaluate, goal.decide, goal.compress, goal.summarise]
