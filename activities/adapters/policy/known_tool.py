"""What policies are told of a tool."""

from typing import Any

from orga.workflows.types.tools import ToolSpec


def known_tool(name: str, spec: ToolSpec | None) -> dict[str, Any]:
    """Return it; a tool without a definition counts as the worst of all."""
    return {
        "name": name,
        "effect": spec.effect if spec else "irreversible",
        "tags": list(spec.options.tags) if spec else [],
        "verified": spec.options.verified if spec else False,
        "approval": spec.options.approval if spec else True,
    }
