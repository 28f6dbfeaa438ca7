"""The one place where adapters, activities and workflows meet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from activities.conversations import Conversations
from activities.gate import ArgumentErrors, GateActivities
from activities.ports import Agents, PolicyEngine, Tool
from activities.prepare import PrepareActivities
from activities.reason import Models, ReasonActivities
from activities.tools import tool_activities
from client.history import WorkflowHistory
from client.sandbox import workflow_runner
from workflows.agent import AgentWorkflow

BUILD_ID = "0.1.0"
"""Stands in three events of every workflow and activity task, so it is short."""

HEARTBEAT_THROTTLE = timedelta(seconds=0.2)
"""How old the live text of a model may be, and how soon an abort is heard."""


@dataclass(frozen=True)
class Parts:
    """What a worker is made of."""

    agents: Agents
    models: Models
    policy: PolicyEngine
    argument_errors: ArgumentErrors
    tools: Sequence[Tool]


def build_worker(client: Client, parts: Parts, task_queue: str, **options: Any) -> Worker:
    """Return a worker for agents and their tools."""
    conversations = Conversations(WorkflowHistory(client))
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[AgentWorkflow],
        activities=_activities(parts, conversations),
        workflow_runner=workflow_runner(),
        build_id=BUILD_ID,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        **options,
    )


def _activities(parts: Parts, conversations: Conversations) -> list[Callable[..., Any]]:
    return [
        PrepareActivities(parts.agents, conversations).prepare,
        ReasonActivities(parts.models, conversations).reason,
        GateActivities(parts.policy, parts.argument_errors).gate,
        *tool_activities(parts.tools, conversations),
    ]
