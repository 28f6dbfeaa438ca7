"""An MCP server whose tools return values with an output schema, as a program over stdio."""

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

server = MCPServer("orders", log_level="ERROR")


class Order(BaseModel):
    """An order."""

    number: str
    total: float
    items: list[str] = []


@server.tool(structured_output=True)
def get_order(number: str) -> Order:
    """Return an order."""
    return Order(number=number, total=40, items=["lamp"])


@server.tool(structured_output=True)
def list_orders() -> list[Order]:
    """Return all orders."""
    return [Order(number="A-1", total=1), Order(number="A-2", total=2)]


@server.tool()
def say(text: str) -> str:
    """Return a text, which the SDK puts into an object."""
    return text


if __name__ == "__main__":
    server.run("stdio")
