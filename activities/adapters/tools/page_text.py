"""Extracts the visible text of an HTML page. As a program, this module reads HTML and writes JSON `[title, text]`."""

import json
import re
import resource
import sys
from collections.abc import Iterator, Mapping, Set

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from orga.activities.text.hidden_markup import (
    Declaration,
    StyleRule,
    declarations,
    hiding_declarations,
    is_for_screens,
    is_revealing,
    style_rules,
)

_DROPPED_ELEMENTS = (
    "script, style, noscript, noembed, noframes, template, nav, footer, iframe, object, embed, audio, video, svg, "
    "canvas, select, datalist, button, progress, meter, dialog, rp, annotation, annotation-xml, mphantom, body title, "
    "[hidden], [popover], [aria-hidden=true i], [role=navigation]"
)
_MAX_RULES = 5_000
_MAX_HIDING_RULES = 300
_MAX_SHOWING_RULES = 300
_INLINE_WEIGHT = (9, 0, 0)

_Specificity = tuple[int, int, int]
_Weight = tuple[bool, _Specificity, int]
"""The weight of a style declaration: is it important, its specificity, its position. The greatest weight wins."""


class _WinningDeclarations:
    """The winning declaration of each property that some declaration uses to hide an element, by element."""

    def __init__(self) -> None:
        self._by_node: dict[int, dict[str, tuple[_Weight, bool]]] = {}
        """The bool is True if the winning declaration hides the element."""

    def hide(self, node: int, weights: Mapping[str, _Weight]) -> None:
        known = self._by_node.setdefault(node, {})
        for name, weight in weights.items():
            if name not in known or known[name][0] <= weight:
                known[name] = weight, True

    def show(self, node: int, weights: Mapping[str, _Weight]) -> None:
        """Add declarations that undo hiding ones of the same property."""
        known = self._by_node.get(node, {})
        for name, weight in weights.items():
            if name in known and known[name][0] <= weight:
                known[name] = weight, False

    def properties(self, node: int) -> Set[str]:
        """Return the properties that some declaration uses to hide this element."""
        return self._by_node.get(node, {}).keys()

    def all_properties(self) -> set[str]:
        return {name for known in self._by_node.values() for name in known}

    def hidden_nodes(self) -> set[int]:
        return {node for node, known in self._by_node.items() if any(hides for _, hides in known.values())}


def hidden_nodes(page: LexborHTMLParser) -> set[int]:
    """Return the ids of hidden elements. Everything inside such an element is hidden too.

    Rules of style sheets are weighed as in a browser. External style sheets, scripts and the layout are not known here.
    """
    return {node.mem_id for node in page.css(_DROPPED_ELEMENTS)} | _hidden_by_style(page)


def _hidden_by_style(page: LexborHTMLParser) -> set[int]:
    winners = _WinningDeclarations()
    sheet_rules = _sheet_rules(page)
    _add_hiding_rules(page, sheet_rules, winners)
    _add_showing_rules(page, sheet_rules, winners)
    for node in page.css("[style]"):
        style = declarations(node.attributes.get("style") or "")
        hiding = hiding_declarations(style)
        if hiding:
            winners.hide(node.mem_id, _weights(style, hiding, _INLINE_WEIGHT))
        revealing = _revealing_names(style, winners.properties(node.mem_id) - hiding)
        winners.show(node.mem_id, _weights(style, revealing, _INLINE_WEIGHT))
    return winners.hidden_nodes()


def _revealing_names(style: Mapping[str, Declaration], names: Set[str]) -> set[str]:
    return {name for name in style.keys() & names if is_revealing(name, style[name].value)}


def _weights(
    style: Mapping[str, Declaration], names: Set[str], specificity: _Specificity, position: int = 0
) -> dict[str, _Weight]:
    return {name: (style[name].is_important, specificity, position) for name in names}


def _sheet_rules(page: LexborHTMLParser) -> list[StyleRule]:
    ignored = {node.mem_id for node in page.css("noscript style, template style")}
    found: list[StyleRule] = []
    for node in page.css("style"):
        if node.mem_id in ignored or not is_for_screens(node.attributes.get("media") or ""):
            continue
        for rule in style_rules(node.text()):
            if len(found) == _MAX_RULES:
                return found
            found.append(rule)
    return found


def _add_hiding_rules(page: LexborHTMLParser, sheet_rules: list[StyleRule], winners: _WinningDeclarations) -> None:
    count = 0
    for position, rule in enumerate(sheet_rules):
        if count < _MAX_HIDING_RULES and (names := hiding_declarations(rule.style)):
            count += 1
            weights = _weights(rule.style, names, rule.weight(), position)
            for node in _matching_nodes(page, rule.selector):
                winners.hide(node.mem_id, weights)


def _add_showing_rules(page: LexborHTMLParser, sheet_rules: list[StyleRule], winners: _WinningDeclarations) -> None:
    names = winners.all_properties()
    count = 0
    for position, rule in enumerate(sheet_rules):
        shown = _revealing_names(rule.style, names - hiding_declarations(rule.style))
        if count < _MAX_SHOWING_RULES and shown:
            count += 1
            weights = _weights(rule.style, shown, rule.weight(), position)
            for node in _matching_nodes(page, rule.selector):
                winners.show(node.mem_id, weights)


def _matching_nodes(page: LexborHTMLParser, selector: str) -> list[LexborNode]:
    try:
        return page.css(selector)
    except SelectolaxError:
        return []  # a browser ignores an invalid selector too


_BLOCK_ELEMENT = re.compile(
    "address|article|aside|blockquote|body|br|dd|details|div|dl|dt|figcaption|figure|form|h[1-6]|header|hr|li|main|ol|p|"
    "section|summary|table|tbody|tfoot|thead|tr|ul"
)
_MARKDOWN_MARKS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "li": "- "}
_MAX_CPU_S = 3
_MAX_MEMORY_BYTES = 1_000_000_000
_MIN_MAIN_CHARACTERS = 200
# Control characters, characters that reverse the reading order, and invisible tags, which can carry a message.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def page_text(html: str) -> tuple[str, str]:
    """Return the title, and the text with a line for each block.

    If a `main` or `article` element has enough text, the text is only that of this element.
    """
    page = LexborHTMLParser(html)
    hidden = hidden_nodes(page)
    title = page.css_first("head title")
    candidates = [*page.css("main, [role=main]")[:1], *page.css("article")[:1], page.body]
    texts = ["\n".join(_text_lines(node, hidden)) for node in candidates if node is not None]
    text = next((text for text in texts if len(text) >= _MIN_MAIN_CHARACTERS), texts[-1] if texts else "")
    return visible_text(" ".join(title.text().split()))[:200] if title else "", text


def visible_text(text: str) -> str:
    r"""Return the text without control and invisible characters. Tabs and `\n` stay."""
    return _INVISIBLE.sub("", text)


def _text_lines(root: LexborNode, hidden: set[int]) -> Iterator[str]:
    parts: list[str] = []
    for piece in [*_text_pieces(root, hidden), "\n"]:
        if "\n" not in piece:
            parts.append(piece)
            continue
        if line := visible_text("".join(parts)).strip(" |"):
            yield line
        parts.clear()
        if block := visible_text(piece).strip("\n"):
            yield block


def _text_pieces(root: LexborNode, hidden: set[int]) -> Iterator[str]:
    r"""Yield pieces of text. A block begins and ends with "\n". Preformatted text is one piece, with "\n" around it."""
    for node, is_end in _node_events(root, hidden):
        if node.tag == "-text":
            yield "" if is_end else re.sub(r"\s+", " ", node.text_content or "")
        elif node.tag == "pre":
            inner = _node_events(node, hidden, into_pre=True)
            texts = (each.text_content or "" for each, ends in inner if each.tag == "-text" and not ends)
            yield "\n" if is_end else f"\n{''.join(texts)}\n"
        elif node.tag in ("td", "th"):
            yield " | " if is_end else ""
        elif _BLOCK_ELEMENT.fullmatch(node.tag or ""):
            yield "\n"
            yield "" if is_end else _MARKDOWN_MARKS.get(node.tag or "", "")


def _node_events(root: LexborNode, hidden: set[int], *, into_pre: bool = False) -> Iterator[tuple[LexborNode, bool]]:
    """Yield each node at its start and at its end, in document order. A page may nest too deeply for recursion."""
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
    """Read a page from standard input and write its title and text as JSON, within limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    sys.stdout.write(json.dumps(page_text(sys.stdin.buffer.read().decode(errors="replace"))))
