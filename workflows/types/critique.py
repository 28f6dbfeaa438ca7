"""The model call by which a critic reviews."""

from workflows.types.context import ReasonRequest

MAX_SUBJECT_BYTES = 200_000
"""A longer text is not reviewed at all: a part that the critic does not see could hide what it is there to find."""


class CritiqueRequest(ReasonRequest):
    """Input of `critique`: the latest model call by reference, and what came of it that is to be reviewed."""

    critic: str
    """Its name; the rest of it stands in the setup."""
    subject: str
    """The answer, or the arguments of a call as JSON."""
    tool: str = ""
    """Of a call."""
    problem: str = ""
    """What was wrong with the verdict before, when it is asked for once more."""
