"""The resources and prompts of a server as tools: they are listed and read like any call, through the gate."""

from collections.abc import Collection, Iterable
from typing import Any

from mcp import ClientSession
from mcp_types import (
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    PaginatedRequestParams,
    Prompt,
    ReadResourceResult,
    Resource,
    TextContent,
    Tool,
    ToolAnnotations,
)

from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.tool_calls.mcp import McpServer

_CURSOR = {"cursor": {"type": "string", "description": "The cursor of the page before. Leave it out at first."}}


def _tool(name: str, description: str, properties: dict[str, Any], *required: str) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    hints = ToolAnnotations(read_only_hint=True)
    return Tool(name=name, description=description, input_schema=schema, annotations=hints)


_RESOURCES = (
    _tool("list_resources", "List the documents and data that this server has, each with its URI.", _CURSOR),
    _tool("read_resource", "Read a resource of this server.", {"uri": {"type": "string"}}, "uri"),
)
_PROMPTS = (
    _tool("list_prompts", "List the prompts that this server has, each with its arguments.", _CURSOR),
    _tool(
        "get_prompt",
        "Read a prompt of this server, filled with arguments.",
        {"name": {"type": "string"}, "arguments": {"type": "object", "additionalProperties": {"type": "string"}}},
        "name",
    ),
)


def reading_tools(server: McpServer, own: Collection[str]) -> list[Tool]:
    """Return the tools that the settings ask for. A tool of the server with the same name, in `own`, wins."""
    wanted = (*(_RESOURCES if server.resources else ()), *(_PROMPTS if server.prompts else ()))
    return [tool for tool in wanted if tool.name not in own]


async def read_from_server(session: ClientSession, name: str, arguments: dict[str, Any]) -> CallToolResult | None:
    """Return the result of one of `reading_tools`, or None if the server asks for input."""
    page = PaginatedRequestParams(cursor=as_text(arguments["cursor"])) if arguments.get("cursor") else None
    if name == "list_resources":
        return _listed_resources(await session.list_resources(params=page))
    if name == "list_prompts":
        return _listed_prompts(await session.list_prompts(params=page))
    found: ReadResourceResult | GetPromptResult | InputRequiredResult
    if name == "read_resource":
        found = await session.read_resource(as_text(arguments.get("uri")), allow_input_required=True)
    else:
        given = {key: as_text(value) for key, value in as_object(arguments.get("arguments")).items()}
        found = await session.get_prompt(as_text(arguments.get("name")), given, allow_input_required=True)
    if isinstance(found, InputRequiredResult):
        return None
    if isinstance(found, ReadResourceResult):
        return CallToolResult(content=[EmbeddedResource(resource=each) for each in found.contents])
    lines = [each for message in found.messages for each in (TextContent(text=f"{message.role}:"), message.content)]
    return CallToolResult(content=lines)


def _listed_resources(page: ListResourcesResult) -> CallToolResult:
    def line(each: Resource) -> str:
        return _joined(each.uri, each.title or each.name, each.mime_type, each.description)

    return _page(map(line, page.resources), page.next_cursor)


def _listed_prompts(page: ListPromptsResult) -> CallToolResult:
    def line(each: Prompt) -> str:
        names = ", ".join(f"{one.name}{'' if one.required else '?'}" for one in each.arguments or ())
        return _joined(f"{each.name}({names})", each.title, each.description)

    return _page(map(line, page.prompts), page.next_cursor)


def _joined(*parts: str | None) -> str:
    return " | ".join(filter(None, parts))


def _page(lines: Iterable[str], cursor: str | None) -> CallToolResult:
    more = [f"There are more. Call again with cursor {cursor}"] if cursor else []
    return CallToolResult(content=[TextContent(text="\n".join([*lines, *more]))])
