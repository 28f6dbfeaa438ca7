"""Removes hidden markup. A reader of the page does not see it, so a model should not either."""

import re
from collections import Counter
from html import unescape

from orga.activities.text.hidden_styles import declarations, hiding_declarations

_DOCUMENT = re.compile(r"<(?:!doctype\s+html|html|head|body)\b", re.I)
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{0,40}")
_REST_OF_TAG = re.compile(r"""[^"'>]*+(?:"[^"]*+"[^"'>]*+|'[^']*+'[^"'>]*+)*+>""")
_MAX_TAG_CHARS = 1_000
_HIDDEN_ATTRIBUTE = re.compile(r"""\s(?:hidden|popover)(?=[\s=/>])|\saria-hidden\s*=\s*["']?true""", re.I)
_STYLE = re.compile(r"""\sstyle\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*))""", re.I)
_OPEN_ATTRIBUTE = re.compile(r"\sopen(?=[\s=/>])", re.I)
_HIDDEN_ELEMENTS = frozenset(
    {"template", "noembed", "noframes", "datalist", "annotation", "annotation-xml", "mphantom"}
)
_VOID_ELEMENTS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


def is_page(text: str) -> bool:
    """Return whether the text is an HTML document. A file with line numbers is not: a model reads it as source."""
    return _DOCUMENT.match(text.lstrip()) is not None


def without_hidden(text: str) -> tuple[str, Counter[str]]:
    """Return a page's HTML without comments and hidden elements, and their counts."""
    text, comments = without_comments(text)
    kept: list[str] = []
    count, at = 0, 0
    for start, end in _hidden_elements(text):
        kept.append(text[at:start])
        count, at = count + 1, end
    found = Counter({"HTML comments": comments, "hidden elements": count})
    return "".join([*kept, text[at:]]), +found


def without_comments(text: str) -> tuple[str, int]:
    """Return the text without HTML comments, and their number. An unclosed one reaches to the end."""
    kept: list[str] = []
    count, at = 0, 0
    while (start := text.find("<!--", at)) >= 0:
        end = text.find("-->", start + 2)
        kept.append(text[at:start])
        count += 1
        at = len(text) if end < 0 else end + 3
    return "".join([*kept, text[at:]]), count


def _hidden_elements(text: str) -> list[tuple[int, int]]:
    """Return the spans of the outermost hidden elements. An unclosed one reaches to the end."""
    spans: list[tuple[int, int]] = []
    hiding_declarations, depth, began = "", 0, 0
    for start, end, name, is_end in _tags(text):
        if hiding_declarations:
            depth += (name == hiding_declarations) * (-1 if is_end else 1)
            if depth == 0:
                spans.append((began, end))
                hiding_declarations = ""
        elif not is_end and _is_hidden(name, text[start:end]):
            if name in _VOID_ELEMENTS or text[end - 2] == "/":
                spans.append((start, end))
            else:
                hiding_declarations, depth, began = name, 1, start
    return [*spans, (began, len(text))] if hiding_declarations else spans


def _tags(text: str) -> list[tuple[int, int, str, bool]]:
    found: list[tuple[int, int, str, bool]] = []
    at = 0
    while (start := text.find("<", at)) >= 0:
        is_end = text.startswith("/", start + 1)
        name = _NAME.match(text, start + 1 + is_end)
        rest = _REST_OF_TAG.match(text, name.end(), start + _MAX_TAG_CHARS) if name else None
        if name and rest:
            found.append((start, rest.end(), name[0].lower(), is_end))
        at = rest.end() if rest else start + 1
    return found


def _is_hidden(name: str, tag: str) -> bool:
    if (
        name in _HIDDEN_ELEMENTS
        or _HIDDEN_ATTRIBUTE.search(tag)
        or (name == "dialog" and not _OPEN_ATTRIBUTE.search(tag))
    ):
        return True
    style = _STYLE.search(tag)
    return style is not None and bool(
        hiding_declarations(declarations(unescape("".join(filter(None, style.groups())))))
    )
