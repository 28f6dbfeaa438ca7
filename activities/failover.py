"""Failover: a model that cannot be asked gives way to the next of its tier, within one attempt of the call.

Each attempt begins with the first again. What the next one fails of on its own terms is its failure, retried as ever.
"""

from collections.abc import Awaitable, Callable, Sequence

from temporalio import activity

from orga.activities.ports import ModelError
from orga.workflows.types.breakers import CIRCUIT_OPEN
from orga.workflows.types.messages import Reply
from orga.workflows.types.text import clean_text, one_line
from orga.workflows.types.tiers import FailedOver

OUT_OF_QUOTA = "OutOfQuota"
NOT_CONFIGURED = "ModelNotConfigured"

GIVES_WAY = frozenset({CIRCUIT_OPEN, OUT_OF_QUOTA, NOT_CONFIGURED})
"""Kinds of failure that another model is asked after: this one was not asked, or answers to nobody who does not pay."""

OVERFLOW = "ContextOverflow"

MAX_WHY_CHARS = 300
MAX_LAST_CHARS = 800
MAX_TRIED_CHARS = 120

Failures = list[tuple[str, ModelError]]


async def first_answer(
    models: Sequence[str], ask: Callable[[str], Awaitable[Reply]], hidden: Callable[[str], str]
) -> Reply:
    """Return the first reply that can be had; it names who answered, and who gave way.

    Args:
        models: `provider:model`, in fallback order.
        ask: Asks one of them.
        hidden: A text without secrets.

    Raises:
        ModelError: The last one's, naming each that was asked.
    """
    failures: Failures = []
    for name in models:
        try:
            reply = await ask(name)
        except ModelError as error:
            failures.append((name, error))
            if error.kind not in GIVES_WAY:
                break
            activity.logger.warning("%s gives way: %s", name, _why(error, hidden, MAX_WHY_CHARS))
        else:
            return _answered(reply, name, failures, hidden) if failures else reply
    raise _combined(failures, hidden)


def _answered(reply: Reply, name: str, failures: Failures, hidden: Callable[[str], str]) -> Reply:
    after = [*(each for each, _ in failures[1:]), name]
    failed_over = tuple(
        FailedOver(before=before, after=then, why=_why(error, hidden, MAX_WHY_CHARS))
        for (before, error), then in zip(failures, after, strict=True)
    )
    provider, _, model = name.partition(":")
    return reply.with_differences(model=f"{provider}:{reply.model or model}", failed_over=failed_over)


def _combined(failures: Failures, hidden: Callable[[str], str]) -> ModelError:
    """Return the last failure, to be retried where any may pass: a fallback must not make less of a run."""
    last = failures[-1][1]
    if len(failures) == 1:
        return last
    tried = ", ".join(f"{name} ({_why(error, hidden, MAX_TRIED_CHARS)})" for name, error in failures)
    text = f"{one_line(clean_text(hidden(str(last))), MAX_LAST_CHARS)}; models tried, in order: {tried}"
    waits = [error.retry_after_s for _, error in failures if error.retryable]
    is_retryable = last.retryable if last.kind == OVERFLOW else bool(waits)
    known = [wait for wait in waits if wait is not None]
    wait = min(known) if is_retryable and known and len(known) == len(waits) else None
    return ModelError(last.kind, text, retryable=is_retryable, retry_after_s=wait)


def _why(error: ModelError, hidden: Callable[[str], str], most: int) -> str:
    return one_line(clean_text(f"{error.kind}: {hidden(str(error))}"), most)
