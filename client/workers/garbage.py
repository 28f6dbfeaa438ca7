"""The garbage collector of a worker process: it has to find the sandboxes of ended runs."""

import gc

THRESHOLDS = (10_000, 3, 1)


def collect_ended_runs() -> None:
    """Leave what was there at the start alone, and look at the rest often.

    Each run leaves the modules of its sandbox, a cycle of about 0.5 MB and 4,000 objects. By default these are looked
    for when a quarter as many objects have come as there are in the whole process: hundreds of runs too late. Behind
    each run would be too often: what live runs hold is looked through as well.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
