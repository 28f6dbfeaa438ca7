"""The text of an HTML page that its reader would see. Run as a program: HTML in, JSON `[title, text]` out."""

import json
import re
import resource
import sys
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from orga.activities.adapters.tools.page_hidden import hidden_nodes

_BLOCKS = frozenset(
    re.findall(
        r"\S+",
        "address article aside blockquote body br dd details div dl dt figcaption figure form h1 h2 h3 h4 h5 h6 "
        "header hr li main ol p section summary table tbody tfoot thead tr ul",
    )
)
_MARKS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "li": "- "}
_MAX_CPU_S = 3
_MAX_MEMORY_BYTES = 1_000_000_000
_MIN_MAIN_CHARACTERS = 200
# Characters that show nothing and can carry a message (tags), or turn the reading order around.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def page_text(html: str) -> tuple[str, str]:
    """Return the title and the text, a line for each block.

    A `main` or `article` element stands for the page when it holds a fair amount of text.
    """
    page = LexborHTMLParser(html)
    hidden = hidden_nodes(page)
    title = page.css_first("head title")
    candidates = [*page.css("main, [role=main]")[:1], *page.css("article")[:1], page.body]
    texts = ["\n".join(_lines(node, hidden)) for node in candidates if node is not None]
    text = next((text for text in texts if len(text) >= _MIN_MAIN_CHARACTERS), texts[-1] if texts else "")
    return visible(" ".join(title.text().split()))[:200] if title else "", text


def visible(text: str) -> str:
    """Return text without control and invisible characters; tabs and line ends stay."""
    return _INVISIBLE.sub("", text)


def _lines(root: LexborNode, hidden: set[int]) -> Iterator[str]:
    parts: list[str] = []
    for piece in [*_pieces(root, hidden), "\n"]:
        if "\n" not in piece:
            parts.append(piece)
            continue
        if line := visible("".join(parts)).strip(" |"):
            yield line
        parts.clear()
        if block := visible(piece).strip("\n"):
            yield block


def _pieces(root: LexborNode, hidden: set[int]) -> Iterator[str]:
    r"""Yield running text on one line, "\n" where a block begins or ends, and preformatted text between two "\n"."""
    for node, is_end in _events(root, hidden):
        if node.tag == "-text":
            yield "" if is_end else re.sub(r"\s+", " ", node.text_content or "")
        elif node.tag == "pre":
            yield "\n" if is_end else f"\n{_preformatted(node, hidden)}\n"
        elif node.tag in ("td", "th"):
            yield " | " if is_end else ""
        elif node.tag in _BLOCKS:
            yield "\n"
            yield "" if is_end else _MARKS.get(node.tag or "", "")


def _preformatted(pre: LexborNode, hidden: set[int]) -> str:
    nodes = (node for node, is_end in _events(pre, hidden, into_pre=True) if node.tag == "-text" and not is_end)
    return "".join(node.text_content or "" for node in nodes)


def _events(root: LexborNode, hidden: set[int], *, into_pre: bool = False) -> Iterator[tuple[LexborNode, bool]]:
    """Yield each node as it begins and ends, in document order; without recursion, since a page may nest deeply."""
    stack = [(root, True), (root, False)]
    while stack:
        node, is_end = stack.pop()
        yield node, is_end
        if is_end or (node.tag == "pre" and not into_pre):
            continue
        child = node.last_child
        while child is not None:
            if child.mem_id not in hidden:
                stack += [(child, True), (child, False)]
            child = child.prev


def main() -> None:
    """Read a page on standard input and write its title and text as JSON, within limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    sys.stdout.write(json.dumps(page_text(sys.stdin.buffer.read().decode(errors="replace"))))
