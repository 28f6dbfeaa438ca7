"""Which declarations of a style make an element's text unreadable. No layout: each set is judged by itself."""

import re
from collections.abc import Callable

from orga.activities.style_values import colour, is_alike, length, lengths, number

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


def declarations(style: str) -> dict[str, tuple[str, bool]]:
    """Return what a style says: values in lower case, the last of a name wins but over an important one.

    A value that hides is not taken back by one that no browser understands.
    """
    found: dict[str, tuple[str, bool]] = {}
    for part in _plain(style[:_MAX_CHARS]).split(";"):
        name, _, value = part.partition(":")
        name = name.strip().removeprefix("-webkit-").removeprefix("-moz-").removeprefix("-ms-")
        value, bang, _ = value.strip()[:_MAX_VALUE].partition("!")
        is_important = bool(bang)
        if name in found and (found[name][1] > is_important or not _is_understood(name, value.strip())):
            continue
        found[name] = value.strip(), is_important
    return found


def hiding(style: dict[str, tuple[str, bool]]) -> set[str]:
    """Return the names of the declarations that hide; of two that hide together the one that is decisive."""
    values = {name: value for name, (value, _) in style.items()}
    found = {name for name, value in values.items() if _hides(name, value)}
    if any(values.get(name) in {"hidden", "clip"} for name in _OVERFLOWS):
        found |= {name for name in _SIZES if name in values and _is_tiny(values[name])}
    return found | _unseen(values)


def shows(name: str, value: str) -> bool:
    """Return whether this would take back what hides by the same name."""
    return _is_understood(name, value) and name not in hiding({name: (value, False), "overflow": ("hidden", False)})


def _plain(style: str) -> str:
    return _ESCAPE.sub(_unescaped, _COMMENT.sub("", style)).lower()


def _unescaped(match: re.Match[str]) -> str:
    code = int(match[1], 16) if match[1] else 0
    return (chr(code) if 0 < code < 0x110000 else "") if match[1] else match[2]


def _is_understood(name: str, value: str) -> bool:
    if name == "display":
        return value == "none" or all(_DISPLAYS.fullmatch(word) for word in value.split()[:3] or ["?"])
    if name == "visibility":
        return value in {"visible", "hidden", "collapse", "inherit", "initial", "unset", "revert"}
    if name == "opacity":
        return number(value) is not None or value in {"inherit", "initial", "unset", "revert"}
    if name in {"color", "text-fill-color"}:
        return colour(value) is not None or value in {"inherit", "initial", "unset", "revert", "currentcolor"}
    return _hides(name, value) or _COMMON.match(value) is not None or "(" in value


def _hides(name: str, value: str) -> bool:
    return name in _HIDES and _HIDES[name](value)


def _is_nothing(value: str) -> bool:
    factors = (number(part.lstrip("-")) for part in value.split()[:3])
    return any(factor is not None and factor <= 0.02 for factor in factors)


def _is_flat(value: str) -> bool:
    return _FLAT.search(value) is not None or any(abs(n) > 1_000 for n in lengths(value, within="translate"))


def _has_tiny_font(value: str) -> bool:
    size = next((word for word in value.split()[:8] if word[0] in "+.0123"), "")
    return _is_tiny(size.partition("/")[0])


def _is_tiny(value: str) -> bool:
    size = length(value)
    return size is not None and -1 <= size <= 1


def _unseen(values: dict[str, str]) -> set[str]:
    """Return the colour's name where it is none, or the background's; a text may show its background instead."""
    if "text" in values.get("background-clip", "") or "text" in values.get("background", ""):
        return set()
    background = values.get("background-color") or values.get("background", "")
    behind = next(filter(None, map(colour, [background, *background.split()[:9]])), None)
    found: set[str] = set()
    for name in ("color", "text-fill-color"):
        own = colour(values.get(name, ""))
        if own and (own[3] <= 0.02 or (behind and is_alike(own, behind))):
            found.add(name)
    return found


_HIDES: dict[str, Callable[[str], bool]] = {
    "display": lambda value: value == "none",
    "visibility": lambda value: value in {"hidden", "collapse"},
    "content-visibility": lambda value: value == "hidden",
    "opacity": lambda value: (1 if (factor := number(value)) is None else factor) <= 0.02,
    **dict.fromkeys(("zoom", "scale"), _is_nothing),
    "font-size": _is_tiny,
    "font": _has_tiny_font,
    "clip": lambda value: _CLIPPED.match(value) is not None,
    "clip-path": lambda value: _CUT_AWAY.match(value) is not None,
    "transform": _is_flat,
    "filter": lambda value: _FADED.search(value) is not None,
    "letter-spacing": lambda value: any(n <= -8 for n in lengths(value)),
    "text-indent": lambda value: any(n <= -100 or n >= 1_000 for n in lengths(value)),
    **dict.fromkeys(_OFFSETS, lambda value: any(n <= -100 or n >= 5_000 for n in lengths(value))),
    **dict.fromkeys(_MARGINS, lambda value: any(abs(n) > 1_000 for n in lengths(value))),
}
"""Of values that hide by themselves."""
