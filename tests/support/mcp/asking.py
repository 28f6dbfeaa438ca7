"""An MCP server (2026-07-28) whose tools need input from people, as a program over stdio: `python asking.py FOLDER`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

FOLDER = Path(sys.argv[1] if sys.argv[1:] else ".")
server = MCPServer("asking", log_level="ERROR")


class Choice(BaseModel):
    """A choice for a person."""

    size: Literal["small", "large"]
    count: int = Field(description="How many pieces?")
    note: str = ""


async def choice(item: str) -> Elicit[Choice]:
    """Ask for the size and the number."""
    return Elicit(f"Which {item} do you want?", Choice)


@server.tool(structured_output=False)
def order(item: str, chosen: Annotated[ElicitationResult[Choice], Resolve(choice)]) -> str:
    """Order an item."""
    if chosen.action != "accept":
        return f"not ordered: {chosen.action}"
    with (FOLDER / "ordered").open("a") as file:
        file.write("x")
    return f"ordered {chosen.data.count} {chosen.data.size} {item} {chosen.data.note}".strip()


@server.tool(structured_output=False)
async def pay(context: Context) -> str | InputRequiredResult:
    """Pay on a page of the shop."""
    if context.input_responses is None:
        asked = ElicitRequest(params=ElicitRequestURLParams(message="Pay here.", url="https://shop.test/pay?id=7"))
        return InputRequiredResult(input_requests={"page": asked}, request_state="state-7")
    answered = context.input_responses["page"]
    assert isinstance(answered, ElicitResult)
    return f"{answered.action} {context.request_state}"


@server.tool(structured_output=False)
async def log_in(context: Context) -> str | InputRequiredResult:
    """Ask for a password, which no form may."""
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}
    asked = ElicitRequest(params=ElicitRequestFormParams(message="Log in.", requested_schema=schema))
    return InputRequiredResult(input_requests={"form": asked})


@server.tool(structured_output=False)
async def confirm(times: int, context: Context) -> str | InputRequiredResult:
    """Ask several times, each time after the answer."""
    asked = int(context.request_state or 0)
    if asked == times:
        return f"confirmed {asked} times"
    form = ElicitRequestFormParams(message=f"Sure {asked}?", requested_schema={"type": "object", "properties": {}})
    return InputRequiredResult(input_requests={"sure": ElicitRequest(params=form)}, request_state=str(asked + 1))


if __name__ == "__main__":
    server.run("stdio")
