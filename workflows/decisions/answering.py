"""Which command decides a question, ready to be copied."""

from shlex import quote

from workflows.types.status import Budgets
from workflows.types.visible import can_be_typed
from workflows.types.waits import Wait

MORE = 2
"""Times the old limit: a suggestion to edit."""


def commands(run_id: str, wait: Wait, budgets: Budgets | None) -> list[str]:
    """Return the commands of which one decides what waits; the first is the likeliest.

    None where a command would not be what it looks like; none approves a call whose arguments are not shown whole.
    """
    if not can_be_typed(run_id):
        return []
    resolve = f"orga resolve {quote(run_id)} {quote(wait.wait_id)}"
    match wait.kind:
        case "escalation":
            return [f"{resolve} {choice}" for choice in ("--retry", "--skip", "--result TEXT", "--abort")]
        case "budget":
            return [_extend(run_id, wait, budgets), f"{resolve} --skip", f"{resolve} --abort"]
        case "approval" if calls := wait.data.get("calls"):
            held = " ".join([quote(run_id), *(quote(str(call["id"])) for call in calls)])
            is_whole = not any(call.get("arguments_digest") for call in calls)
            return [f"orga approve {held}{'' if is_whole else ' --show'}", f"orga deny {held}"]
        case _:
            return [f"orga status {quote(run_id)}"]


def _extend(run_id: str, wait: Wait, budgets: Budgets | None) -> str:
    limit = str(wait.data.get("limit") or "max_iterations")
    now = getattr(budgets, limit, None)
    value = "N" if not now else f"{now * MORE:.12g}"
    return f"orga extend {quote(run_id)} --{limit.replace('_', '-')} {value}"
