"""Whether a run's `output_schema` can be had: from any model, and from this one."""

from typing import Any

from orga.activities.adapters.models.reader.fill import can_fill
from orga.activities.adapters.models.settings import EMBEDDED_MODEL
from orga.activities.adapters.schemas.arguments import schema_problem


def schema_refusal(schema: dict[str, Any] | None, model: str) -> str:
    """Return why not, or "" when it can."""
    if schema is None:
        return ""
    if problem := schema_problem(schema):
        return f"cannot be used, {problem}"
    if model == EMBEDDED_MODEL and not can_fill(schema):
        return f"{EMBEDDED_MODEL} can fill a string or an object of one string only; choose another model"
    return ""
