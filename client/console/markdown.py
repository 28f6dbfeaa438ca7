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
        if token.nesting < 0:
            open_children.pop()
        elif token.nesting > 0:
            if token.tag not in ELEMENTS or token.hidden or len(open_children) > MAX_DEPTH:
                open_children.append(here)
                continue
            children: list[Node] = []
            here.append({"kind": token.tag, **_details(token), "children": children})
            open_children.append(children)
        elif token.type == "code_inline":
            here.append({"kind": "code", "children": [token.content]})
        elif token.type in {"fence", "code_block"}:
            here.append({"kind": "pre", "language": token.info.split(" ")[0], "children": [token.content]})
        elif token.type == "hr":
            here.append({"kind": "hr", "children": []})
        elif token.type == "hardbreak":
            here.append({"kind": "br", "children": []})
        else:
            here.append("\n" if token.type == "softbreak" else token.content)
    return root


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
