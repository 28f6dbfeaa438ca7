"""Which command decides a question, ready to be copied."""

from shlex import quote

from client.cli.held_calls import held_calls
from workflows.types.dead_letters import DeadLetter
from workflows.types.status import Budgets
from workflows.types.waits import Wait

MORE = 2
"""Times the old limit: a suggestion to edit."""

_LIMITS = (
    ("model calls", "max_model_calls"),
    ("tool calls", "max_tool_calls"),
    ("max_iterations:", "max_iterations"),
    ("max_tokens:", "max_total_tokens"),
    ("max_cost:", "max_cost_usd"),
    ("timeout:", "timeout_s"),
)
"""What the question about a budget says, and the limit that it is about; the first that fits."""


def commands(run_id: str, wait: Wait, budgets: Budgets | None) -> list[str]:
    """Return the commands of which one decides what waits; the first is the likeliest."""
    resolve = f"orga resolve {quote(run_id)} {quote(wait.wait_id)}"
    match wait.kind:
        case "escalation":
            return [f"{resolve} {choice}" for choice in ("--retry", "--skip", "--result TEXT", "--abort")]
        case "budget":
            return [_extend(run_id, wait, budgets), f"{resolve} --skip", f"{resolve} --abort"]
        case "approval" if calls := held_calls(wait):
            held = " ".join([quote(run_id), *(quote(str(call["id"])) for call in calls)])
            return [f"orga approve {held}", f"orga deny {held}"]
        case _:
            return [f"orga status {quote(run_id)}"]


def in_one_line(run_id: str, wait: Wait, budgets: Budgets | None) -> str:
    """Return the first command with the other ones in short."""
    first, *others = commands(run_id, wait, budgets)
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
    return f"orga requeue {quote(run_id)} {quote(letter.letter_id)}{' --fork' if is_over else ''}"


def _extend(run_id: str, wait: Wait, budgets: Budgets | None) -> str:
    limit = next((limit for says, limit in _LIMITS if says in wait.question), "max_iterations")
    now = getattr(budgets, limit, None)
    value = "N" if not now else f"{now * MORE:.12g}"
    return f"orga extend {quote(run_id)} --{limit.replace('_', '-')} {value}"
