"""Actions of the assistant that nobody can undo."""

from pathlib import Path

from orga import tool


@tool(effect="irreversible")
def refund(order: str, cents: int) -> str:
    """Pay a customer back."""
    with Path("ledger").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{order} {cents}\n")
    return f"refunded {cents} cents of {order}"
