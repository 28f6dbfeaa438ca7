"""A worker process finds the cycles that ended runs leave, and no longer looks at what it started with."""

import gc

from orga.client.workers.garbage import THRESHOLDS, collect_ended_runs


def test_what_was_there_at_the_start_is_left_alone() -> None:
    gc.set_threshold(700, 10, 10)
    frozen, there = gc.get_freeze_count(), [[number] for number in range(10_000)]
    collect_ended_runs()
    assert gc.get_freeze_count() - frozen >= len(there)
    assert gc.get_threshold() == THRESHOLDS
