"""The shop's orders: an activity of the application, and a tool of its agents."""

from temporalio import activity

from orga import tool

ORDERS = {"ORD-7": "two lamps, sent on Monday by parcel", "ORD-8": "one chair, waits for its fabric"}


@tool(effect="read_only")
@activity.defn
async def look_up_order(order: str) -> str:
    """Return the state of an order.

    Args:
        order: Its number, as ORD-7.
    """
    return f"{order}: {ORDERS.get(order, 'there is no such order')}"
