"""What others send to a live run: an argument that says nothing here, and takes long to read, is not read.

All signals that came since the last workflow task are read in one, which the SDK gives two seconds; what takes longer
is tried again for ever. Who replays a run, or folds its history, leaves out the same.
"""

import json
import re
from collections.abc import Iterable

from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob

from orga.workflows.types.json_text import has_more_parts, without_strings

MAX_OBJECT_BYTES = 700_000
"""Of an argument that is no text. The largest that says something is the result which a person gives to go on with."""

MAX_PARTS = 1_000
"""Of an argument that is no text: its lists, objects and commas."""

MAX_DIGITS = 400
"""Of a number; longer ones take a time that is quadratic in their length."""

MAX_UPDATE_BYTES = 1_900_000
"""Of all arguments of an update. The answer to it repeats them, and the server takes no answer of 2 MiB."""

_DIGITS = re.compile(rb"[0-9]++")


def bounded_payloads(payloads: Iterable[Payload]) -> list[Payload]:
    """Return the arguments, in place of those that are not read a text that says so."""
    return [_placeholder(payload) if _is_too_large(payload.data) else payload for payload in payloads]


def bound_activation(activation: WorkflowActivation) -> None:
    """Bound what signals and updates bring.

    An update of too many bytes is taken out: the server tells its sender that it was not taken, and the run goes on.
    """
    jobs = [job for job in activation.jobs if not _is_large_update(job)]
    for job in jobs:
        if job.HasField("signal_workflow"):
            given = job.signal_workflow.input
        elif job.HasField("do_update"):
            given = job.do_update.input
        else:
            continue
        read = bounded_payloads(given)
        del given[:]
        given.extend(read)
    if len(jobs) < len(activation.jobs):
        del activation.jobs[:]
        activation.jobs.extend(jobs)


def _is_large_update(job: WorkflowActivationJob) -> bool:
    given = job.do_update.input if job.HasField("do_update") else ()
    return sum(len(payload.data) for payload in given) > MAX_UPDATE_BYTES


def _is_too_large(data: bytes) -> bool:
    if data.startswith(b'"'):
        return False
    if len(data) > MAX_OBJECT_BYTES or has_more_parts(data, MAX_PARTS):
        return True
    return any(len(digits) > MAX_DIGITS for digits in _DIGITS.findall(without_strings(data)))


def _placeholder(payload: Payload) -> Payload:
    told = f"[not read: an argument of {len(payload.data)} bytes that is no text]"
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(told).encode())
