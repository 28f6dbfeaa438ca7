"""Replay of recorded histories against the code of today."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Plugin, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from orga.client.config.sections import OrgaConfig
from orga.client.runners.observed import REPLAY_BUILD, ObservedRunner
from orga.client.runs.agents import AgentHandle
from orga.client.testing.recorded import NoHistory, recorded_history
from orga.client.workers.plugin import OrgaPlugin
from orga.workflows.types.text import one_line

Recorded = WorkflowHistory | AgentHandle | WorkflowHandle[Any, Any] | Path | str

MESSAGE_CHARS = 700

_EVENT_ID = re.compile(r"\b(?:id|event_id): ?(\d+)")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
