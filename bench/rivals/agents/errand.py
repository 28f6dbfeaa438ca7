"""The errand of every agent: a number of payments, one after another, each by one call of one tool."""

import os
import time
from pathlib import Path

RESULT = "paid " + "x" * 1_995
"""The tool's result of 2,000 characters."""

ADDRESS = os.environ.get("RIVALS_ADDRESS", "")
FOLDER = Path(os.environ.get("RIVALS_FOLDER", "."))
HELD = int(os.environ.get("RIVALS_HELD", "-1"))
"""The payment that takes a minute, so that the process can be killed during it."""
EFFECT = os.environ.get("RIVALS_EFFECT", "irreversible")
"""The effect of a repeated payment, for frameworks that ask."""


def task(payments: int) -> str:
    return f"Make {payments} payments."


def next_payment(task: str, paid: int) -> int | None:
    """Return the number of the payment that comes next, or None. The scripted models use it.

    Args:
        task: The text of the task.
        paid: Results of the tool in the conversation.
    """
    return paid if paid < int(task.split()[1]) else None


def pay_now(number: int) -> str:
    """Pay: a line in a file is the effect."""
    with (FOLDER / "payments").open("a") as file:
        file.write(f"{number}\n")
    if number == HELD:
        time.sleep(60)
    return RESULT
