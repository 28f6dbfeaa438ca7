"""The public API for an application's workflows: `run_agent` runs an agent as a child workflow."""

from orga.workflows.children import run_agent

__all__ = ["run_agent"]
