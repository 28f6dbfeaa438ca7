"""Numbers, lengths and colours of a style, as far as they can be known without laying a page out."""

import re

Colour = tuple[int, int, int, float]

_NUMBER = re.compile(r"([+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[+-]?\d{1,2})?)(%|[a-z]{0,4})")
_CALC_MINUS = re.compile(r"-\s*\d{0,3}\s*\*|\*\s*-|(?<![\d.])0\s*[a-z]*\s*-\s")
_ALIKE = 8
"""Of 255."""
_PIXELS = {"em": 16.0, "rem": 16.0, "ex": 8.0, "ch": 8.0, "pt": 1.33, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78}
_OF_SCREEN = {"vw": 12.8, "vh": 8.0, "vmin": 8.0, "vmax": 12.8, "dvh": 8.0, "dvw": 12.8, "%": 10.0}
_NAMED = {
    **{"white": "fff", "black": "000", "red": "f00", "lime": "0f0", "blue": "00f", "yellow": "ff0", "aqua": "0ff"},
    **{"gray": "808080", "grey": "808080", "silver": "c0c0c0", "green": "008000", "navy": "000080", "teal": "008080"},
    **{"snow": "fffafa", "ivory": "fffff0", "whitesmoke": "f5f5f5", "maroon": "800000", "purple": "800080"},
    **{"fuchsia": "f0f", "magenta": "f0f", "cyan": "0ff", "olive": "808000", "orange": "ffa500"},
    "transparent": "0000",
}


def number(value: str) -> float | None:
    """Return a number or percentage."""
    match = _NUMBER.fullmatch(_bare(value))
    if not match or match[2] not in {"", "%"}:
        return None
    return float(match[1]) / (100 if match[2] else 1)


def length(value: str) -> float | None:
    """Return a length in pixels, of an ordinary screen and font; None for a word."""
    match = _NUMBER.fullmatch(_bare(value))
    if not match:
        return None
    return float(match[1]) * ({**_PIXELS, **_OF_SCREEN}.get(match[2], 1.0) if match[2] else 1.0)


def lengths(value: str, within: str = "") -> list[float]:
    """Return all lengths of a value, or of it from the word `within` on; those that `calc` turns around, turned."""
    at = value.find(within)
    if at < 0:
        return []
    sign = -1 if "calc(" in value and _CALC_MINUS.search(value[:200]) else 1
    found = (length(match.group()) for match in _NUMBER.finditer(value[at : at + 200]) if match.group())
    return [each * sign if sign < 0 and each > 0 else each for each in found if each is not None]


def is_alike(one: Colour, other: Colour) -> bool:
    """Return whether nobody can tell two colours apart."""
    return one[3] == other[3] and all(abs(a - b) <= _ALIKE for a, b in zip(one[:3], other[:3], strict=True))


def _bare(value: str) -> str:
    """Return a value that is alone within `calc` without it."""
    return value.strip().removeprefix("calc(").removesuffix(")").strip()


def colour(value: str) -> Colour | None:
    """Return red, green, blue and opacity of a colour that is written out, or of a common name."""
    value = value.strip()
    if value.startswith("#") or value in _NAMED:
        return _of_digits(_NAMED.get(value, value[1:]))
    name, bracket, inside = value[:200].partition("(")
    parts = [_part(part) for part in re.split(r"[\s,/]+", inside.strip(" )")) if part]
    if not bracket or name not in {"rgb", "rgba", "hsl", "hsla", "hwb", "lab", "lch", "oklab", "oklch"}:
        return None
    if len(parts) not in {3, 4} or None in parts:
        return None
    red, green, blue, *opacity = [part for part in parts if part is not None]
    alpha = opacity[0] if opacity else 1.0
    return (
        (int(red), int(green), int(blue), alpha)
        if name.startswith("rgb")
        else (1_000 + int(red), int(green * 100), int(blue * 100), alpha)
    )


def _part(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    return 0.0 if text == "none" else float(match[1]) / (100 if match[2] == "%" else 1) if match else None


def _of_digits(digits: str) -> Colour | None:
    if len(digits) in {3, 4}:
        digits = "".join(digit * 2 for digit in digits)
    if not re.fullmatch(r"[0-9a-f]{6}(?:[0-9a-f]{2})?", digits):
        return None
    red, green, blue, alpha = (int(digits[n : n + 2] or "ff", 16) for n in (0, 2, 4, 6))
    return red, green, blue, alpha / 255
