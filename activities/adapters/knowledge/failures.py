"""Failures of a store in the words of a tool."""

from collections.abc import Generator
from contextlib import contextmanager

from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.ports import ToolError


@contextmanager
def told_to_model() -> Generator[None]:
    """Tell the model what a store says.

    Raises:
        ToolError: In place of a `KnowledgeError`: the store does all of it or nothing.
    """
    try:
        yield
    except KnowledgeError as error:
        raise ToolError(str(error), kind=error.kind, retryable=error.retryable, acted="no") from error
