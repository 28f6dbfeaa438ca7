"""The errand that every agent runs: so many payments, one after another, each by one call of one tool."""

import os
import time
from pathlib import Path

RESULT = "paid " + "x" * 1_995
"""What the tool returns: 2,000 characters."""

ADDRESS = os.environ.get("RIVALS_ADDRESS", "")
FOLDER = Path(os.environ.get("RIVALS_FOLDER", "."))
HELD = int(os.environ.get("RIVALS_HELD", "-1"))
"""The payment that does not return for a minute, so that the process can be killed in the middle of it."""
EFFECT = os.environ.get("RIVALS_EFFECT", "irreversible")
"""What repeating a payment does, for whom that is a question."""


def task(payments: int) -> str:
    return f"Make {payments} payments."


def next_payment(said: str, paid: int) -> int | None:
    """Return the number of the payment that comes next, or None: what the scripted models have for a mind.

    Args:
        said: The task.
        paid: Results of the tool in the conversation.
    """
    return paid if paid < int(said.split()[1]) else None


def pay_now(number: int) -> str:
    """Pay: a line in a file is the effect."""
    with (FOLDER / "payments").open("a") as file:
        file.write(f"{number}\n")
    if number == HELD:
        time.sleep(60)
    return RESULT
