"""What a run's sandbox makes anew for it: workflow code alone, whose annotations cost nothing there."""

import __future__

from types import ModuleType
from typing import Any, cast

import pytest
from temporalio.worker.workflow_sandbox._importer import Importer
from temporalio.worker.workflow_sandbox._restrictions import RestrictionContext

from orga.client.runners.imports import quick_import
from orga.client.runners.kinds import WORKFLOWS
from orga.client.runners.passed import NOTHING
from orga.client.runners.sandbox import workflow_runner


def made_for(workflow: type[Any]) -> dict[str, ModuleType]:
    """Return the modules of ours that a run of it does not share with its worker."""
    restrictions = cast(Any, workflow_runner()).restrictions
    importer = Importer(restrictions, RestrictionContext())
    importer.import_func = cast(Any, quick_import(importer, NOTHING))
    with importer.applied():
        __import__(workflow.__module__, fromlist=[workflow.__name__])
    return {
        name: module
        for name, module in importer.new_modules.items()
        if name.startswith("orga.workflows.") and not importer.module_configured_passthrough(name)
    }


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.__name__)
def test_annotations_are_not_evaluated_for_each_run(workflow: type[Any]) -> None:
    made = made_for(workflow)
    evaluating = [
        name
        for name, module in made.items()
        if not hasattr(module, "__path__") and getattr(module, "annotations", None) is not __future__.annotations
    ]
    assert len(made) > 40
    assert not evaluating, "begin them with `from __future__ import annotations`: it is a third of what a sandbox costs"
