"""The argument of an update or a query: small, with known keys."""

from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from workflows.types.input import problems
from workflows.types.input_bounds import bounds_problem

M = TypeVar("M", bound=BaseModel)

_SHOWN_CHARS = 100


def parsed(kind: type[M], raw: object, *, long: frozenset[str] = frozenset()) -> M:
    """Check what somebody sent; keys that are `long` have limits of their own.

    Raises:
        ValueError: With every problem, each naming its key. Its text is short whatever was sent: the answer to an
            update goes into one message of the server, which would end the run.
    """
    if problem := _problem_of(raw, long):
        raise ValueError(problem)
    try:
        return kind.model_validate(raw, extra="forbid")
    except ValidationError as error:
        raise ValueError("; ".join(problems(error))) from None


def _problem_of(raw: object, long: frozenset[str]) -> str:
    if isinstance(raw, str):
        return f"input: give an object, not the text {raw[:_SHOWN_CHARS]!r}"
    return bounds_problem(cast("dict[Any, Any]", raw), long) if isinstance(raw, dict) else ""
