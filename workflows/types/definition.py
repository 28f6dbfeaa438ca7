"""How our classes become workflows: looked through by the SDK once in a process, then known to each run's sandbox.

The SDK inspects every member of a workflow's class and of its bases, for milliseconds. A sandbox runs the same code
once more, so the class that it makes has the same handlers under the same names.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar

from temporalio import workflow

KNOWN_SDK = "1.35."
"""The SDK whose parts without an API are made use of here and in the runners; another one does all by itself."""

T = TypeVar("T", bound=type[Any])

_DEFINITION = "__temporal_workflow_definition"

_known: dict[tuple[str, str], Any] = {}
"""Definitions by module and class: those of the process's own classes, which come before any sandbox."""


@cache
def knows_sdk() -> bool:
    """Return whether it is the SDK that we know."""
    return version("temporalio").startswith(KNOWN_SDK)


def define_workflow(name: str) -> Callable[[T], T]:
    """Make the class a workflow of that name, as `workflow.defn` does."""

    def define(cls: T) -> T:
        known = _known.get((cls.__module__, cls.__qualname__)) if knows_sdk() else None
        if known is None:
            workflow.defn(name=name)(cls)
            _known[cls.__module__, cls.__qualname__] = getattr(cls, _DEFINITION)
        else:
            _take(cls, known)
        return cls

    return define


def _take(cls: type[Any], known: Any) -> None:
    """Give the class the definition that another of the same code has, with the class's own functions."""

    def own(handlers: dict[str | None, Any], definition: str) -> dict[str | None, Any]:
        return {name: getattr(getattr(cls, each.fn.__name__), definition) for name, each in handlers.items()}

    run_fn = getattr(cls, known.run_fn.__name__)
    made = replace(
        known,
        cls=cls,
        run_fn=run_fn,
        signals=own(known.signals, "__temporal_signal_definition"),
        queries=own(known.queries, "__temporal_query_definition"),
        updates=own(known.updates, "_defn"),
    )
    setattr(cls, _DEFINITION, made)
    setattr(run_fn, _DEFINITION, made)
