"""A worker that stops cancels what it carries out: no end of the run, but a failure, and another attempt follows."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.workflows.types.tools import WORKER_SHUTDOWN


@contextmanager
def told_of_shutdown() -> Generator[None]:
    """Make that failure of the cancellation; any other stays one."""
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.worker_shutdown:
            raise ApplicationError("the worker was stopped meanwhile", type=WORKER_SHUTDOWN) from None
        raise
