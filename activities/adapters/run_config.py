"""The limits and settings of a run: its own keys over its agent's, under the ceiling of the run that delegates."""

from typing import Any, cast

from pydantic import ValidationError

from orga.workflows.types.delegation import Ceiling
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.record import InvalidInput, problems


def run_config(agent: LoopConfig, given: dict[str, Any], ceiling: Ceiling) -> LoopConfig:
    """Return the effective config.

    A setting that is an object (`recovery`, `tool_profile`, ...) is merged key by key; null takes it away.

    Raises:
        InvalidInput: The keys do not go together, or the ceiling leaves nothing.
    """
    base = agent.model_dump()
    merged = {key: _laid_over(base.get(key), value) for key, value in given.items()}
    config = _checked(base | merged, "config")
    return _checked(config.model_dump() | _lowered(config, ceiling), "lineage.ceiling")


def _laid_over(base: Any, given: Any) -> Any:
    if isinstance(base, dict) and isinstance(given, dict):
        return cast("dict[str, Any]", base) | cast("dict[str, Any]", given)
    return given


def _lowered(config: LoopConfig, ceiling: Ceiling) -> dict[str, Any]:
    limits = ceiling.model_dump(exclude={"tools", "tier"}, exclude_none=True)
    own = {key: getattr(config, key) for key in limits}
    return {key: limit if own[key] is None else min(own[key], limit) for key, limit in limits.items()}


def _checked(values: dict[str, Any], place: str) -> LoopConfig:
    try:
        return LoopConfig.model_validate(values)
    except ValidationError as error:
        raise InvalidInput("; ".join(f"{place}.{problem}" for problem in problems(error, LoopConfig))) from None
