"""What people are shown of an answer where there is little room: who ended how, and as much as fits, with the rest's
place.

An answer is the model's words: nothing in it calls people, hides, or leads elsewhere than it says.
"""

from orga.activities.ports import RunKey
from orga.activities.text.characters import without_invisible, without_sequences
from orga.workflows.types.goals.deliveries import DeliveryRequest, full_answer_location
from orga.workflows.types.text import one_line


def outcome_heading(request: DeliveryRequest, run: RunKey) -> str:
    """Return who ended how, on one line."""
    ended = f"{request.reason} ({request.detail})" if request.detail else request.reason
    return one_line(f"{request.goal}: {ended}, confidence {request.confidence:.2f} [{run.workflow_id}]", 600)


def visible_answer(request: DeliveryRequest) -> str:
    """Return the answer without what does not show."""
    return without_invisible(without_sequences(request.text)[0])[0]


def shortened_text(text: str, most: int, size: int, run: RunKey) -> str:
    """Return the text, or its beginning and where the whole is.

    Args:
        text: To be shown.
        most: Characters, as UTF-16 counts them: so do chat systems.
        size: Characters of the whole answer.
        run: The goal's.
    """
    if _utf16_length(text) <= most:
        return text
    pointer = f"\n\n[cut: {size:,} characters in all; {full_answer_location(run.workflow_id)}]"
    room = most - _utf16_length(pointer)
    return text.encode("utf-16-le", "replace")[: room * 2].decode("utf-16-le", "ignore") + pointer


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2
