"""What workflows of others import: `run_agent`, which runs an agent as a child. A sandbox loads it quickly."""

from orga.workflows.children import run_agent

__all__ = ["run_agent"]
