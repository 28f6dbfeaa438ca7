"""The arguments of a call, checked and with their defaults."""

from collections.abc import Mapping
from typing import Any

from orga.activities.adapters.manifests.argument import Argument
from orga.activities.adapters.manifests.kinds import KINDS, Ground, Value, parameters_of
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ToolError

Values = Mapping[str, Value]
"""By name; an optional argument that was not given is not there."""


def checked(given: Mapping[str, Any], declared: Mapping[str, Argument], ground: Ground) -> Values:
    """Return the values.

    Raises:
        ToolError: Kind InvalidArguments, every problem with the argument's name; of a path kind PathRefused.
    """
    whole: dict[str, Any] = {name: each.default for name, each in declared.items() if each.default is not None}
    whole |= given
    problems = argument_errors(parameters_of(declared), whole)
    if problems:
        raise invalid("; ".join(problems))
    values: dict[str, Value] = {}
    for name, value in whole.items():
        try:
            values[name] = KINDS[declared[name].type].read(value, declared[name], ground)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise invalid("; ".join(problems))
    return values


def as_text(value: Value) -> str:
    """Return how a value is written into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def as_texts(value: Value | None) -> list[str]:
    """Return the texts of a list, or of the one value, or none."""
    if value is None:
        return []
    return [as_text(each) for each in value] if isinstance(value, tuple) else [as_text(value)]


def invalid(problem: str) -> ToolError:
    """Return the error that tells the model what to mend."""
    return ToolError(f"invalid arguments: {problem}", kind="InvalidArguments")
