"""Limits what others send to a live run: an argument that is too large to be valid and slow to read is not read.

One workflow task reads all signals that arrived since the last one, and the SDK gives it two seconds. A task that takes
longer is repeated for ever. Replays, and folds of the history, leave out the same arguments.
"""

import json
import re
from collections.abc import Iterable

from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob

from orga.workflows.types.json_text import has_more_parts, without_strings

MAX_OBJECT_BYTES = 700_000
"""Limit for an argument that is no text. The largest valid one is the result that a person gives a run to use."""

MAX_PARTS = 1_000
"""Limit for an argument that is no text: its lists, objects and commas together."""

MAX_DIGITS = 400
"""Limit for a number. The time to parse one is quadratic in its length."""

MAX_UPDATE_BYTES = 1_900_000
"""Limit for all arguments of an update. Its answer repeats them, and the server refuses answers of 2 MiB."""

_DIGITS = re.compile(rb"[0-9]++")


def bounded_payloads(payloads: Iterable[Payload]) -> list[Payload]:
    """Return the arguments. A text replaces each argument that is not read."""
    return [_placeholder(payload) if _is_too_large(payload.data) else payload for payload in payloads]


def bound_activation(activation: WorkflowActivation) -> None:
    """Limit the arguments of signals and updates.

    An update with too many bytes is removed. The server reports to its sender that it was not taken, and the run
    continues.
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
    text = f"[not read: an argument of {len(payload.data)} bytes that is no text]"
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(text).encode())
