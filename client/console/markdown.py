"""Parses Markdown into a tree of a few kinds of elements, from which pages make HTML. HTML in a text stays text."""

from asyncio import to_thread
from typing import Annotated, Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import Field

from orga.client.console.routes import Call, Routes
from orga.workflows.types.record import CheckedInput

ROUTES = Routes()

MAX_TEXT = 65_536
"""Characters. The rest of a longer text becomes one plain paragraph."""
MAX_DEPTH = 40
"""Levels of elements. The content of a deeper element becomes part of the deepest one that is allowed."""

ELEMENTS = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "em", "strong", "s", "a"}
    | {"table", "thead", "tbody", "tr", "th", "td"}
)
"""The kinds of element with a beginning and an end, named as in HTML. Others are `pre`, `code`, `br` and `hr`."""

Node: TypeAlias = str | dict[str, Any]
"""A text, or an element: `kind`, `children`, and `start`, `href` or `language`, if it has one."""


def markdown_tree(text: str) -> list[Node]:
    """Return the elements of a text. HTML and images stay text. Only http, https and mailto become links."""
    nodes = _nodes(_PARSER.parse(text[:MAX_TEXT]))
    if len(text) > MAX_TEXT:
        nodes.append({"kind": "p", "children": [text[MAX_TEXT:]]})
    return nodes


class Texts(CheckedInput):
    texts: Annotated[list[str], Field(max_length=100)]


@ROUTES.post("/markdown", {"type": "object", "properties": {"trees": {"type": "array"}}}, is_write=False)
async def _markdown(call: Call[Texts]) -> dict[str, Any]:
    """Return the elements of texts in Markdown, in their order. It changes nothing."""
    # in a thread, because the parser takes seconds for some texts, and other requests would wait
    return {"trees": [await to_thread(markdown_tree, text) for text in call.given.texts]}


def _nodes(tokens: list[Token]) -> list[Node]:
    root: list[Node] = []
    open_children = [root]
    flat = list[Token]()
    for token in tokens:
        flat += (token.children or []) if token.type == "inline" else [token]
    for token in flat:
        here = open_children[-1]
        is_shown = token.tag in ELEMENTS and not token.hidden and len(open_children) <= MAX_DEPTH
        if token.nesting < 0:
            open_children.pop()
        elif token.nesting == 0:
            here.append(_leaf(token))
        elif is_shown:
            children: list[Node] = []
            here.append({"kind": token.tag, **_details(token), "children": children})
            open_children.append(children)
        else:
            open_children.append(here)
    return root


def _leaf(token: Token) -> Node:
    match token.type:
        case "code_inline":
            return {"kind": "code", "children": [token.content]}
        case "fence" | "code_block":
            return {"kind": "pre", "language": token.info.split(" ")[0], "children": [token.content]}
        case "hr":
            return {"kind": "hr", "children": []}
        case "hardbreak":
            return {"kind": "br", "children": []}
        case "softbreak":
            return "\n"
        case _:
            return token.content


def _details(token: Token) -> dict[str, Any]:
    match token.type:
        case "ordered_list_open":
            return {"start": int(token.attrs.get("start", 1))}
        case "link_open":
            return {"href": str(token.attrs.get("href", ""))}
        case _:
            return {}


_PARSER = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["table", "strikethrough"])
    .disable(["image", "html_block", "html_inline"])
)
# the library calls this to check a link
_PARSER.validateLink = lambda url: url.lower().startswith(("http://", "https://", "mailto:"))  # pyright: ignore[reportAttributeAccessIssue]
