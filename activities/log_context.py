"""What log records made inside an activity carry: the iteration that it belongs to."""

import structlog


def log_iteration(iteration: int) -> None:
    """Put the iteration on every record of this activity; each has a context of its own, so nothing undoes it."""
    structlog.contextvars.bind_contextvars(iteration=iteration)


def log_iteration_of(activity_id: str) -> None:
    """Do so for a tool call, whose id is `iteration.index`."""
    iteration = activity_id.partition(".")[0]
    if iteration.isdecimal():
        log_iteration(int(iteration))
