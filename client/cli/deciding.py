"""How the commands that decide a question are shown."""

from shlex import quote

from orga.workflows.decisions.limits import commands
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.recovery import DeadLetter
from orga.workflows.types.text import can_be_typed

NO_COMMAND = "no command: the run's id holds what does not show; decide it in the Temporal UI"


def in_one_line(run_id: str, wait: ShownQuestion) -> str:
    """Return the first command with the other ones in short."""
    first, *others = commands(run_id, wait) or [NO_COMMAND]
    said, short = first, list[str]()
    for other in others:
        shared = _shared(said, other)
        short.append(other.removeprefix(shared))
        said = other
    return f"{first} (or {', '.join(short)})" if short else first


def _shared(before: str, after: str) -> str:
    """Return what two commands have in common: all words before the choice."""
    words = after.rpartition(" --")[0] + " "
    return words if before.startswith(words) else ""


def requeueing(run_id: str, letter: DeadLetter, *, is_over: bool) -> str:
    """Return the command that sends a letter again; of a run that has ended, a fork does."""
    if not can_be_typed(run_id):
        return NO_COMMAND
    return f"orga requeue {quote(run_id)} {quote(letter.letter_id)}{' --fork' if is_over else ''}"
