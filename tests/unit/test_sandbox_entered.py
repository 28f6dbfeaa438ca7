"""The sandbox of a run is entered in one pass: what holds inside is what the SDK's own way of entering makes hold."""

import builtins
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from temporalio.worker.workflow_sandbox import SandboxRestrictions
from temporalio.worker.workflow_sandbox._importer import Importer
from temporalio.worker.workflow_sandbox._restrictions import RestrictedWorkflowAccessError, RestrictionContext

from orga.client.runners.entered import entered, replaced_in


def an_importer() -> Importer:
    importer = Importer(SandboxRestrictions.default, RestrictionContext())
    importer.restriction_context.is_runtime = True
    return importer


def seen(importer: Importer) -> tuple[Any, ...]:
    """Return what code in this thread has: its modules, its import, whose sandbox it is in, and what it may not do."""
    try:
        builtins.open(__file__).close()  # noqa: PTH123
        opens = True
    except RestrictedWorkflowAccessError:
        opens = False
    modules: Any = sys.modules
    is_own = getattr(modules, "current", modules) is importer.new_modules
    return is_own, Importer.current_importer() is importer, opens, __import__("random") is random


def test_inside_holds_what_the_sdk_makes_hold_and_outside_all_is_as_before() -> None:
    importer = an_importer()
    plain = sys.modules, builtins.__import__, builtins.open, builtins.isinstance
    outside = seen(importer)
    with importer.applied():
        by_the_sdk = seen(importer)
    with entered(importer, replaced_in(importer)):
        inside = seen(importer)
    assert inside == by_the_sdk == (True, True, False, False)
    assert seen(importer) == outside == (False, False, True, True)
    assert all(
        now is before
        for now, before in zip(
            (sys.modules, builtins.__import__, builtins.open, builtins.isinstance), plain, strict=True
        )
    )


def test_other_threads_are_outside() -> None:
    importer = an_importer()
    with ThreadPoolExecutor(1) as pool, entered(importer, replaced_in(importer)):
        assert pool.submit(seen, importer).result() == (False, False, True, True)
        assert seen(importer) == (True, True, False, False)


def test_what_was_entered_before_holds_again_behind_an_error() -> None:
    outer, inner = an_importer(), an_importer()
    with outer.applied():
        with pytest.raises(LookupError, match="True, True, False"), entered(inner, replaced_in(inner)):
            raise LookupError(seen(inner))
        assert seen(outer)[:3] == (True, True, False)
    assert seen(outer) == (False, False, True, True)
