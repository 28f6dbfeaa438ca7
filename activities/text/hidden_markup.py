"""Removes the parts of a page that its readers do not see, so that a model does not read them either.

CSS can make the text of an element unreadable. Nothing is laid out here: each declaration is judged on its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from typing import NamedTuple

Colour = tuple[int, int, int, float]
"""Red, green, blue (0 to 255) and opacity (0 to 1). Colours of other spaces get numbers that can only be compared."""

_NUMBER = re.compile(r"([+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[+-]?\d{1,2})?)(%|[a-z]{0,4})")
_CALC_MINUS = re.compile(r"-\s*\d{0,3}\s*\*|\*\s*-|(?<![\d.])0\s*[a-z]*\s*-\s")
_ALIKE_DISTANCE = 8
"""The largest difference of red, green or blue between colours that look alike."""
_INVISIBLE_FACTOR = 0.02
"""The largest opacity or scale at which nobody can read a text."""
_PIXELS = {"em": 16.0, "rem": 16.0, "ex": 8.0, "ch": 8.0, "pt": 1.33, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78}
_SCREEN_UNITS = {"vw": 12.8, "vh": 8.0, "vmin": 8.0, "vmax": 12.8, "dvh": 8.0, "dvw": 12.8, "%": 10.0}
_NAMED_COLOURS = {
    **{"white": "fff", "black": "000", "red": "f00", "lime": "0f0", "blue": "00f", "yellow": "ff0", "aqua": "0ff"},
    **{"gray": "808080", "grey": "808080", "silver": "c0c0c0", "green": "008000", "navy": "000080", "teal": "008080"},
    **{"snow": "fffafa", "ivory": "fffff0", "whitesmoke": "f5f5f5", "maroon": "800000", "purple": "800080"},
    **{"fuchsia": "f0f", "magenta": "f0f", "cyan": "0ff", "olive": "808000", "orange": "ffa500"},
    "transparent": "0000",
}


def parse_number(value: str) -> float | None:
    match = _NUMBER.fullmatch(_without_calc(value))
    if not match or match[2] not in {"", "%"}:
        return None
    return float(match[1]) / (100 if match[2] else 1)


def parse_length(value: str) -> float | None:
    """Return a length in pixels on an ordinary screen with an ordinary font, or None for a keyword."""
    match = _NUMBER.fullmatch(_without_calc(value))
    if not match:
        return None
    return float(match[1]) * {**_PIXELS, **_SCREEN_UNITS}.get(match[2], 1.0)


def parse_lengths(value: str, within: str = "") -> list[float]:
    """Return all lengths of a value, or of its part from `within` on. If a `calc` negates, no length is positive."""
    at = value.find(within)
    if at < 0:
        return []
    is_negated = "calc(" in value and _CALC_MINUS.search(value[:200])
    found = (parse_length(match.group()) for match in _NUMBER.finditer(value[at : at + 200]) if match.group())
    return [-abs(length) if is_negated else length for length in found if length is not None]


def is_alike(one: Colour, other: Colour) -> bool:
    return one[3] == other[3] and all(abs(a - b) <= _ALIKE_DISTANCE for a, b in zip(one[:3], other[:3], strict=True))


def _without_calc(value: str) -> str:
    return value.strip().removeprefix("calc(").removesuffix(")").strip()


def parse_colour(value: str) -> Colour | None:
    """Return red, green, blue and opacity of a colour given by numbers or by a common name."""
    value = value.strip()
    if value.startswith("#") or value in _NAMED_COLOURS:
        return _hex_colour(_NAMED_COLOURS.get(value, value[1:]))
    name, bracket, inside = value[:200].partition("(")
    parts = [_colour_part(part) for part in re.split(r"[\s,/]+", inside.strip(" )")) if part]
    if not bracket or name not in {"rgb", "rgba", "hsl", "hsla", "hwb", "lab", "lch", "oklab", "oklch"}:
        return None
    if len(parts) not in {3, 4} or None in parts:
        return None
    red, green, blue, *opacity = [part for part in parts if part is not None]
    alpha = opacity[0] if opacity else 1.0
    if name.startswith("rgb"):
        return int(red), int(green), int(blue), alpha
    return 1_000 + int(red), int(green * 100), int(blue * 100), alpha  # 1,000: like no colour of `rgb`


def _colour_part(text: str) -> float | None:
    if text == "none":
        return 0.0
    match = _NUMBER.fullmatch(text)
    return float(match[1]) / (100 if match[2] == "%" else 1) if match else None


def _hex_colour(digits: str) -> Colour | None:
    if len(digits) in {3, 4}:
        digits = "".join(digit * 2 for digit in digits)
    if not re.fullmatch(r"[0-9a-f]{6}(?:[0-9a-f]{2})?", digits):
        return None
    red, green, blue, alpha = (int(digits[n : n + 2] or "ff", 16) for n in (0, 2, 4, 6))
    return red, green, blue, alpha / 255


_COMMENT = re.compile(r"/\*.*?(?:\*/|$)", re.S)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|([^\n]))")
_MAX_CHARS = 20_000
_MAX_VALUE = 300
_OFFSETS = ("left", "top", "right", "bottom", "inset", "inset-inline-start", "inset-block-start")
_MARGINS = ("translate", "margin", "margin-left", "margin-top", "margin-right", "margin-bottom", "margin-inline-start")
_SIZES = ("width", "height", "max-width", "max-height", "inline-size", "block-size", "max-block-size")
_OVERFLOWS = ("overflow", "overflow-x", "overflow-y")
_DISPLAYS = re.compile(
    r"(?:inline-)?(?:block|flex|grid|table)|inline|contents|flow-root|list-item|table-[a-z-]+|inherit|initial|unset"
    r"|revert(?:-layer)?"
)
_COMMON = re.compile(
    r"none|auto|normal|visible|inherit|initial|unset|revert|(?:xx?-)?(?:small|large)|medium|[-+.\d]\S*"
)
"""Values that browsers understand for most properties."""
_CLIPPED = re.compile(r"rect\(0\D*0\D*0\D*0\D*\)|rect\(([\d.]+)(?:px)?[\s,]+\1(?:px)?[\s,]+\1(?:px)?[\s,]+\1(?:px)?\)")
_CUT_AWAY = re.compile(
    r"inset\((?:[5-9]\d|100)(?:\.\d+)?%|inset\((?:100%|0)\s+(?:0\s+){0,2}100%|(?:circle|ellipse)\(0(?!\.0*[1-9]|\d)"
    r"|polygon\((0[a-z%]*\s+0[a-z%]*[,\s]*)+\)"
)
_FLAT = re.compile(
    r"scale(?:3d|x|y)?\((?:[^()]*,)?\s*[+-]?(?:0*\.?0+\d?|0+\.0+\d*)(?:e\S*)?%?\s*[,)]|matrix\(\s*0\s*,\s*0\s*,\s*0\s*,\s*0\s*,"
    r"|rotate[xy]\(\s*-?(?:90deg|270deg|100grad|\.25turn|0\.25turn)"
)
_FADED = re.compile(r"opacity\(\s*\+?(?:0*\.?0+|0+\.0+\d*)(?:e\S*)?%?\s*\)")


class Declaration(NamedTuple):
    """A declaration of a style. The value is in lower case."""

    value: str
    is_important: bool


def declarations(style: str) -> dict[str, Declaration]:
    """Return the declarations of a style by name.

    The last one of a name wins, but not over `!important`. A value that no browser understands replaces no other one.
    """
    found: dict[str, Declaration] = {}
    plain = _ESCAPE.sub(_unescape, _COMMENT.sub("", style[:_MAX_CHARS])).lower()
    for part in plain.split(";"):
        name, _, value = part.partition(":")
        name = name.strip().removeprefix("-webkit-").removeprefix("-moz-").removeprefix("-ms-")
        value, bang, _ = value.strip()[:_MAX_VALUE].partition("!")
        is_important = bool(bang)
        if name in found:
            is_outranked = found[name].is_important and not is_important
            if is_outranked or not _is_understood(name, value.strip()):
                continue
        found[name] = Declaration(value.strip(), is_important)
    return found


def hiding_declarations(style: Mapping[str, Declaration]) -> set[str]:
    """Return the names of the declarations that hide. Of two that hide only together, it returns the decisive one."""
    values = {name: value for name, (value, _) in style.items()}
    found = {name for name, value in values.items() if _is_hiding(name, value)}
    if any(values.get(name) in {"hidden", "clip"} for name in _OVERFLOWS):
        found |= {name for name in _SIZES if name in values and _is_tiny(values[name])}
    return found | _unseen_colours(values)


def is_revealing(name: str, value: str) -> bool:
    """Return whether this value would undo a hiding declaration of the same name."""
    hiding = hiding_declarations({name: Declaration(value, False), "overflow": Declaration("hidden", False)})
    return _is_understood(name, value) and name not in hiding


def _unescape(match: re.Match[str]) -> str:
    if not match[1]:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if 0 < code < 0x110000 else ""


def _is_understood(name: str, value: str) -> bool:
    if name == "display":
        return value == "none" or all(_DISPLAYS.fullmatch(word) for word in value.split()[:3] or ["?"])
    if name == "visibility":
        return value in {"visible", "hidden", "collapse", "inherit", "initial", "unset", "revert"}
    if name == "opacity":
        return parse_number(value) is not None or value in {"inherit", "initial", "unset", "revert"}
    if name in {"color", "text-fill-color"}:
        return parse_colour(value) is not None or value in {"inherit", "initial", "unset", "revert", "currentcolor"}
    return _is_hiding(name, value) or _COMMON.match(value) is not None or "(" in value


def _is_hiding(name: str, value: str) -> bool:
    return name in _HIDING_TESTS and _HIDING_TESTS[name](value)


def _is_transparent(value: str) -> bool:
    opacity = parse_number(value)
    return opacity is not None and opacity <= _INVISIBLE_FACTOR


def _is_scaled_away(value: str) -> bool:
    factors = (parse_number(part.lstrip("-")) for part in value.split()[:3])
    return any(factor is not None and factor <= _INVISIBLE_FACTOR for factor in factors)


def _is_flat(value: str) -> bool:
    return _FLAT.search(value) is not None or any(abs(n) > 1_000 for n in parse_lengths(value, within="translate"))


def _has_tiny_font(value: str) -> bool:
    size = next((word for word in value.split()[:8] if word[0] in "+.0123"), "")
    return _is_tiny(size.partition("/")[0])


def _is_tiny(value: str) -> bool:
    size = parse_length(value)
    return size is not None and -1 <= size <= 1


def _unseen_colours(values: dict[str, str]) -> set[str]:
    if "text" in values.get("background-clip", "") or "text" in values.get("background", ""):
        return set()  # the background is clipped to the letters, and shows them
    background = values.get("background-color") or values.get("background", "")
    back_colour = next(filter(None, map(parse_colour, [background, *background.split()[:9]])), None)
    found: set[str] = set()
    for name in ("color", "text-fill-color"):
        colour = parse_colour(values.get(name, ""))
        if colour and (colour[3] <= _INVISIBLE_FACTOR or (back_colour and is_alike(colour, back_colour))):
            found.add(name)
    return found


_HIDING_TESTS: dict[str, Callable[[str], bool]] = {
    "display": lambda value: value == "none",
    "visibility": lambda value: value in {"hidden", "collapse"},
    "content-visibility": lambda value: value == "hidden",
    "opacity": _is_transparent,
    **dict.fromkeys(("zoom", "scale"), _is_scaled_away),
    "font-size": _is_tiny,
    "font": _has_tiny_font,
    "clip": lambda value: _CLIPPED.match(value) is not None,
    "clip-path": lambda value: _CUT_AWAY.match(value) is not None,
    "transform": _is_flat,
    "filter": lambda value: _FADED.search(value) is not None,
    "letter-spacing": lambda value: any(n <= -8 for n in parse_lengths(value)),
    "text-indent": lambda value: any(n <= -100 or n >= 1_000 for n in parse_lengths(value)),
    **dict.fromkeys(_OFFSETS, lambda value: any(n <= -100 or n >= 5_000 for n in parse_lengths(value))),
    **dict.fromkeys(_MARGINS, lambda value: any(abs(n) > 1_000 for n in parse_lengths(value))),
}
"""Tests by property. Each returns whether a value hides an element, whatever the other declarations are."""


_TOKEN = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|/\*.*?(?:\*/|$)|\\.|[{}]|<!--|-->""", re.S)
_MAX_SHEET_CHARS = 500_000
_WIDTH = 1_280  # pixels of an ordinary screen
_FEATURE = re.compile(r"(min|max)-width\s*:\s*([\d.]{1,9})(px|em|rem)")
_OTHER_FEATURE = re.compile(r"dark|more|reduce|portrait|coarse|forced-colors|none|print|speech|inverted|\bnot\b")
_GROUPS = ("@media", "@supports", "@layer")
_PSEUDO = re.compile(r":{1,2}[a-z-]+", re.I)
_KNOWN_PSEUDO = re.compile(
    r":(?:not|is|where|has|root|empty|(?:first|last|only)-(?:child|of-type)|nth-(?:last-)?(?:child|of-type))", re.I
)


@dataclass(frozen=True)
class StyleRule:
    """A selector with its declarations."""

    selector: str
    style: dict[str, Declaration]

    def weight(self) -> tuple[int, int, int]:
        """Return the selector's specificity: the numbers of ids, of classes and the like, and of elements."""
        selector = re.sub(r"\\.", "x", self.selector)
        bare = re.sub(r":(?:not|is|has)\(|\"[^\"]*\"|'[^']*'", " ", selector)
        ids, classes = len(re.findall(r"#[\w-]", bare)), len(re.findall(r"\.[\w-]|\[|:", bare))
        return ids, classes, len(re.findall(r"(?:^|[\s>+~])[a-zA-Z]", bare))


def style_rules(sheet: str) -> Iterator[StyleRule]:
    """Yield the rules in order, each with one selector. Rules for paper, narrow screens and hovering are left out."""
    for prelude, body in _declaration_blocks(sheet[:_MAX_SHEET_CHARS]):
        style = declarations(body)
        has_brackets = "(" in prelude or "[" in prelude  # a comma within brackets separates no selectors
        for selector in map(str.strip, [prelude] if has_brackets else prelude.split(",")[:100]):
            if all(_KNOWN_PSEUDO.fullmatch(pseudo) for pseudo in _PSEUDO.findall(re.sub(r"\\.", "", selector))):
                yield StyleRule(selector, style)


def is_for_screens(media: str) -> bool:
    """Return whether any media query of a list matches an ordinary screen."""
    return any(_query_matches(query) for query in media[:1_000].lower().split(","))


def _query_matches(query: str) -> bool:
    query = query.replace("not print", "screen")
    for which, value, unit in _FEATURE.findall(query):
        width = float(value if value.count(".") < 2 else 0) * (1 if unit == "px" else 16)
        if (which == "min" and width > _WIDTH) or (which == "max" and width < _WIDTH):
            return False
    return _OTHER_FEATURE.search(query) is None


def _declaration_blocks(sheet: str) -> Iterator[tuple[str, str]]:
    """Yield the prelude and the content of each declaration block. Nested blocks are left out."""
    applies, depth, prelude = [True], 0, ""  # `applies` has an element for each open group
    outside: list[str] = []
    inside: list[str] = []
    for kind, text in _sheet_parts(sheet):
        if kind == "text":
            if depth < 2:
                (inside if depth else outside).append(text)
        elif depth:
            depth += 1 if kind == "{" else -1
            if depth == 0:
                if applies[-1]:
                    yield prelude, "".join(inside)
                inside.clear()
        else:
            prelude = "".join(outside).rpartition(";")[2].strip()
            outside.clear()
            if kind == "}":
                applies = applies[:-1] or [True]
            elif prelude.lower().startswith(_GROUPS):
                applies.append(applies[-1] and (prelude[:6].lower() != "@media" or is_for_screens(prelude[6:])))
            else:
                depth = 1
    if depth and applies[-1]:
        yield prelude, "".join(inside)


def _sheet_parts(sheet: str) -> Iterator[tuple[str, str]]:
    at = 0
    for match in _TOKEN.finditer(sheet):
        if match.start() > at:
            yield "text", sheet[at : match.start()]
        at = match.end()
        token = match.group()
        if token in {"{", "}"}:
            yield token, ""
        elif not token.startswith(("/*", "<!--", "-->")):
            yield "text", token
    if at < len(sheet):
        yield "text", sheet[at:]


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
    hidden, depth, began = "", 0, 0
    for start, end, name, is_end in _tags(text):
        if hidden:
            if name == hidden:
                depth += -1 if is_end else 1
            if depth == 0:
                spans.append((began, end))
                hidden = ""
        elif not is_end and _is_hidden(name, text[start:end]):
            if name in _VOID_ELEMENTS or text[end - 2] == "/":
                spans.append((start, end))
            else:
                hidden, depth, began = name, 1, start
    return [*spans, (began, len(text))] if hidden else spans


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
    is_closed = name == "dialog" and not _OPEN_ATTRIBUTE.search(tag)
    if is_closed or name in _HIDDEN_ELEMENTS or _HIDDEN_ATTRIBUTE.search(tag):
        return True
    style = _STYLE.search(tag)
    return bool(style and hiding_declarations(declarations(unescape("".join(filter(None, style.groups()))))))
