"""How one run's sandbox is entered: in one pass, where the SDK (temporalio 1.35) nests a context manager for each name.

What holds inside is the same: what workflow code may not use is replaced for its thread alone, and what other threads
have in place at that moment stays as they have it.
"""

import builtins
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from temporalio.worker.workflow_sandbox._importer import (
    Importer,
    _thread_local_import,
    _thread_local_sys_modules,
    _ThreadLocalOverride,
)


class Replaced(NamedTuple):
    """A name that means something else inside: whose it is, what finds the thread's own, and what that is here."""

    owner: Any
    name: str
    by_thread: _ThreadLocalOverride[Any]
    here: Any


def replaced_in(importer: Importer) -> tuple[Replaced, ...]:
    """Return all that one sandbox replaces."""
    restricted: list[tuple[str, Any, Any]] = importer.restricted_builtins  # pyright: ignore
    return (
        Replaced(sys, "modules", _thread_local_sys_modules, importer.new_modules),
        Replaced(builtins, "__import__", _thread_local_import, importer.import_func),
        *(Replaced(builtins, name, by_thread, here) for name, by_thread, here in restricted),
    )


@contextmanager
def entered(importer: Importer, replaced: tuple[Replaced, ...]) -> Generator[None]:
    """Be in the sandbox, in this thread."""
    current, outside = Importer._thread_local_current, Importer.current_importer()
    before = [each.by_thread.maybe_current for each in replaced]
    current.importer = importer
    for owner, name, by_thread, here in replaced:
        with by_thread.applied_counter_lock:
            by_thread.applied_counter += 1
            if getattr(owner, name) is not by_thread:
                setattr(owner, name, by_thread)
        by_thread.current = here
    try:
        yield
    finally:
        for (owner, name, by_thread, _), earlier in zip(replaced, before, strict=True):
            if earlier is None:
                del by_thread.current
            else:
                by_thread.current = earlier
            with by_thread.applied_counter_lock:
                by_thread.applied_counter -= 1
                if by_thread.applied_counter == 0:
                    setattr(owner, name, by_thread.orig)
        current.importer = outside
