"""Shortens an answer for people: which goal ended how, as much of the answer as fits, and where the rest is.

A model writes an answer, so nothing in it may mention people, hide, or link elsewhere than it shows.
"""

from orga.activities.ports import RunKey
from orga.activities.text.characters import without_invisible, without_sequences
from orga.workflows.types.goals.deliveries import DeliveryRequest, full_answer_location
from orga.workflows.types.text import one_line


def outcome_heading(request: DeliveryRequest, run: RunKey) -> str:
    """Return which goal ended how, on one line."""
    ended = f"{request.reason} ({request.detail})" if request.detail else request.reason
    return one_line(f"{request.goal}: {ended}, confidence {request.confidence:.2f} [{run.workflow_id}]", 600)


def visible_answer(request: DeliveryRequest) -> str:
    """Return the answer without invisible characters and terminal sequences."""
    return without_invisible(without_sequences(request.text)[0])[0]


def shortened_text(text: str, most: int, size: int, run: RunKey) -> str:
    """Return the text, or its beginning with a note where the whole answer is.

    Args:
        text: The text to shorten.
        most: Limit in UTF-16 characters, as chat systems count.
        size: Characters of the whole answer.
        run: The goal's run.
    """
    if _utf16_length(text) <= most:
        return text
    pointer = f"\n\n[cut: {size:,} characters in all; {full_answer_location(run.workflow_id)}]"
    room = most - _utf16_length(pointer)
    return text.encode("utf-16-le", "replace")[: room * 2].decode("utf-16-le", "ignore") + pointer


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2
