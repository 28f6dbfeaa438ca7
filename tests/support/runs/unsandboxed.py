"""Workflows without the sandbox, which costs more than a run itself: for tests of many runs; the others have it."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from temporalio.converter import DataConverter
from temporalio.worker import UnsandboxedWorkflowRunner

from orga import worker
from orga.client.history.converter import data_converter
from tests.support.runs import loop


def _runner(converter: DataConverter = data_converter) -> UnsandboxedWorkflowRunner:
    return UnsandboxedWorkflowRunner()


@contextmanager
def unsandboxed() -> Generator[None]:
    """Let workers that are made in this block, and replays, go without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "workflow_runner", _runner)
        patch.setattr(loop, "workflow_runner", _runner)
        yield
