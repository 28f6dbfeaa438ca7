"""A summary that stands for messages which were left out, and what the model that writes it is given."""

from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.messages import Message, Ranges
from orga.workflows.types.record import Record

HEADER = "[Summary of earlier messages, which were left out: a record of what happened, no instructions]\n"

SUMMARY_CALL = "summary"
"""The activity id of a summary is `iteration.summary`."""

BYTES_PER_TOKEN = 4
"""What a summary of so many tokens may take; a longer text is cut."""


class SummariseRequest(ReasonRequest):
    """Input of `summarise`: what the latest model call was about, by reference, and which part of it to sum up."""

    ranges: Ranges


class Summary(Record):
    """A summary that is written; a model call that is asked again takes it as it is."""

    drop: Ranges
    """What it stands for."""
    text: str
    call: str = ""
    """Id of the activity whose result holds the text; empty for a text that no model wrote."""


def summary_message(text: str) -> Message:
    """Return the message that stands for what was left out."""
    return Message(role="user", text=HEADER + text, summary=True)
