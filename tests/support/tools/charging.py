"""A tool function that ends in the way that it is told."""

from typing import Any

from orga.activities.tools_api import ToolError, tool


@tool()
def charge(how: str) -> Any:
    """Charge, and end in some way."""
    endings: dict[str, BaseException] = {
        "error": ValueError("no such field in the bank's answer"),
        "timeout": TimeoutError("the bank is slow"),
        "connection": ConnectionResetError("the bank hung up"),
        "exit": SystemExit(3),
        "passing": ToolError("the bank answered 502", retryable=True),
        "said": ToolError("half of it is booked", acted="maybe"),
        "refused": ToolError("no such account"),
        "not begun": ToolError("the bank takes no calls now", retryable=True, acted="no"),
        "booked": ToolError("booked, but its number is missing", acted="yes"),
    }
    if how in endings:
        raise endings[how]
    booking: list[Any] = []
    booking.append(booking)
    return booking if how == "in itself" else object()
