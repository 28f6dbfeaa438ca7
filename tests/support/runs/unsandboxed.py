"""Workflows without the sandbox, which costs more than a run itself: for tests of many runs; the others have it."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

import pytest
from temporalio.converter import DataConverter
from temporalio.worker import UnsandboxedWorkflowRunner

from orga.client.history.converter import data_converter


def _runner(converter: DataConverter = data_converter) -> UnsandboxedWorkflowRunner:
    return UnsandboxedWorkflowRunner()


@contextmanager
def unsandboxed() -> Generator[None]:
    """Let workers that are made in this block go without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            import_module("orga.worker"), "workflow_runner", _runner
        )  # by name: `orga` has a function so called
        yield
