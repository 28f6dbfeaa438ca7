"""How our classes become workflows: looked through by the SDK once in a process, then known to each run's sandbox.

The SDK inspects every member of a workflow's class and of its bases, for milliseconds. A sandbox runs the same code
once more, so the class that it makes has the same handlers under the same names. So it is with each handler, whose
signature the SDK reads.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio import workflow

KNOWN_SDK = "1.35."
"""The SDK whose parts without an API are made use of here and in the runners; another one does all by itself."""

T = TypeVar("T", bound=type[Any])

_DEFINITION = "__temporal_workflow_definition"
_SIGNAL, _QUERY, _UPDATE = "__temporal_signal_definition", "__temporal_query_definition", "_defn"

_known: dict[tuple[str, str], Any] = {}
"""Definitions by module and class: those of the process's own classes, which come before any sandbox."""

_known_handlers: dict[tuple[str, CodeType], Any] = {}
"""Functions that the SDK has made handlers, by module and code."""


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
        signals=own(known.signals, _SIGNAL),
        queries=own(known.queries, _QUERY),
        updates=own(known.updates, _UPDATE),
    )
    setattr(cls, _DEFINITION, made)
    setattr(run_fn, _DEFINITION, made)


if TYPE_CHECKING:
    query, signal, update = workflow.query, workflow.signal, workflow.update
else:

    def _once(decorator: Callable[..., Any], definition: str) -> Callable[..., Any]:
        """Return a decorator of handlers that lets the SDK's look at the same code once."""

        def decorate(fn: Callable[..., Any] | None = None, **named: Any) -> Any:
            if fn is None:
                return partial(decorate, **named)
            known = _known_handlers.get((fn.__module__, fn.__code__)) if knows_sdk() else None
            if known is None:
                _known_handlers[fn.__module__, fn.__code__] = decorator(**named)(fn) if named else decorator(fn)
                return fn
            defined = getattr(known, definition)
            own = object.__new__(type(defined))
            vars(own).update(vars(defined), fn=fn)
            if hasattr(known, "validator"):
                vars(own)["validator"] = None
                fn.validator = partial(known.validator.func, own)
            setattr(fn, definition, own)
            return fn

        return decorate

    signal = _once(workflow.signal, _SIGNAL)
    query = _once(workflow.query, _QUERY)
    update = _once(workflow.update, _UPDATE)
