"""The kinds of workflow that there are: what workers run, and what replays a history of any run."""

from typing import Any

from orga.workflows.agent import AgentWorkflow
from orga.workflows.goal import GoalWorkflow
from orga.workflows.session import SessionWorkflow

WORKFLOWS: list[type[Any]] = [AgentWorkflow, GoalWorkflow, SessionWorkflow]
