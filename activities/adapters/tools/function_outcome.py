"""What became of a Python function's call: its result as text, its exception as a ToolError."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from orga.activities.ports import ToolError
from orga.workflows.types.tools import ToolOutput


@contextmanager
def failures_told(name: str) -> Generator[None]:
    """Turn exceptions into ToolError where they are raised: SystemExit further up would end the worker."""
    try:
        yield
    except ToolError:
        raise
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        told = f"{name} failed: {kind}: {error}"
        raise ToolError(told, kind=kind, retryable=isinstance(error, OSError), acted="maybe") from error


def as_output(name: str, result: Any) -> ToolOutput:
    """Return a string as it is, anything else as JSON.

    Raises:
        ToolError: Kind InvalidResult.
    """
    if isinstance(result, ToolOutput):
        return result
    try:
        return ToolOutput(content=result if isinstance(result, str) else to_json(result).decode())
    except (PydanticSerializationError, ValueError) as error:
        message = f"{name} returned {type(result).__name__}, which is no JSON; have it return text or JSON"
        raise ToolError(message, kind="InvalidResult", acted="yes") from error
