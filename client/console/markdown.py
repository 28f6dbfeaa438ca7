"""Markdown as a tree of few kinds of elements, from which the pages make elements. HTML in it is text."""

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
"""Elements within elements. Deeper ones give their content to the last one that fits."""

KINDS = {
    "paragraph_open": "paragraph",
    "heading_open": "heading",
    "bullet_list_open": "bullets",
    "ordered_list_open": "numbers",
    "list_item_open": "item",
    "blockquote_open": "quote",
    "em_open": "emphasis",
    "strong_open": "strong",
    "s_open": "strike",
    "link_open": "link",
    "table_open": "table",
    "thead_open": "head",
    "tbody_open": "body",
    "tr_open": "row",
    "th_open": "title",
    "td_open": "cell",
}
"""The kind of element of each opening token. The other kinds: `block` (of code), `code`, `break`, `rule`."""


Node: TypeAlias = str | dict[str, Any]
"""A text, or an element: `kind`, `children`, and `level`, `start`, `href` or `language`, if it has one."""


def markdown_tree(text: str) -> list[Node]:
    """Return the elements of a text. HTML and images are text, and only http, https and mailto are links."""
    nodes = _nodes(_PARSER.parse(text[:MAX_TEXT]))
    if len(text) > MAX_TEXT:
        nodes.append({"kind": "paragraph", "children": [text[MAX_TEXT:]]})
    return nodes


class Texts(CheckedInput):
    """Texts in Markdown."""

    texts: Annotated[list[str], Field(max_length=100)]


@ROUTES.post("/markdown", {"type": "object", "properties": {"trees": {"type": "array"}}}, is_write=False)
async def _markdown(call: Call[Texts]) -> dict[str, Any]:
    """Return the elements of texts in Markdown, in their order. It changes nothing."""
    return {"trees": [markdown_tree(text) for text in call.given.texts]}


def _nodes(tokens: list[Token]) -> list[Node]:
    root: list[Node] = []
    open_children = [root]
    for token in _flat(tokens):
        here = open_children[-1]
        if token.nesting < 0:
            open_children.pop()
        elif token.nesting > 0:
            kind = KINDS.get(token.type)
            if kind is None or token.hidden or len(open_children) > MAX_DEPTH:
                open_children.append(here)
                continue
            children: list[Node] = []
            here.append({"kind": kind, **_details(token), "children": children})
            open_children.append(children)
        elif token.type == "code_inline":
            here.append({"kind": "code", "children": [token.content]})
        elif token.type in {"fence", "code_block"}:
            here.append({"kind": "block", "language": token.info.split(" ")[0], "children": [token.content]})
        elif token.type == "hr":
            here.append({"kind": "rule", "children": []})
        elif token.type == "hardbreak":
            here.append({"kind": "break", "children": []})
        else:
            here.append("\n" if token.type == "softbreak" else token.content)
    return root


def _flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token.children or [] if token.type == "inline" else [token])]


def _details(token: Token) -> dict[str, Any]:
    match token.type:
        case "heading_open":
            return {"level": int(token.tag[1:])}
        case "ordered_list_open":
            return {"start": int(token.attrs.get("start", 1))}
        case "link_open":
            return {"href": str(token.attrs.get("href", ""))}
        case _:
            return {}


def _is_link(address: str) -> bool:
    return address.lower().startswith(("http://", "https://", "mailto:"))


_PARSER = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["table", "strikethrough"])
    .disable(["image", "html_block", "html_inline"])
)
_PARSER.validateLink = _is_link  # pyright: ignore[reportAttributeAccessIssue] - the library's own way to restrict links
