"""A worker process finds the cycles that ended runs leave, and no longer looks at what it started with."""

import gc
from collections.abc import Generator

import pytest

from client.garbage import THRESHOLDS, collect_ended_runs


@pytest.fixture
def _collector() -> Generator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_collector")
def test_what_was_there_at_the_start_is_left_alone() -> None:
    collect_ended_runs()
    assert gc.get_freeze_count() > 1_000
    assert gc.get_threshold() == THRESHOLDS
