"""The rules of a style sheet that count on a screen, without laying anything out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orga.activities.hiding_style import declarations

_TOKEN = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|/\*.*?(?:\*/|$)|\\.|[{}]|<!--|-->""", re.S)
_MAX_CHARS = 500_000
_WIDTH = 1_280
_FEATURE = re.compile(r"(min|max)-width\s*:\s*([\d.]{1,9})(px|em|rem)")
_OTHER_FEATURE = re.compile(r"dark|more|reduce|portrait|coarse|forced-colors|none|print|speech|inverted|\bnot\b")
_GROUPS = ("@media", "@supports", "@layer")
_PSEUDO = re.compile(r":{1,2}[a-z-]+", re.I)
_KNOWN_PSEUDO = re.compile(
    r":(?:not|is|where|has|root|empty|(?:first|last|only)-(?:child|of-type)|nth-(?:last-)?(?:child|of-type))", re.I
)


@dataclass(frozen=True)
class Rule:
    """One selector with what it says."""

    selector: str
    style: dict[str, tuple[str, bool]]

    def weight(self) -> tuple[int, int, int]:
        """Return how much the selector counts against others: ids, classes and the like, elements."""
        selector = re.sub(r"\\.", "x", self.selector)
        bare = re.sub(r":(?:not|is|has)\(|\"[^\"]*\"|'[^']*'", " ", selector)
        ids, classes = len(re.findall(r"#[\w-]", bare)), len(re.findall(r"\.[\w-]|\[|:", bare))
        return ids, classes, len(re.findall(r"(?:^|[\s>+~])[a-zA-Z]", bare))


def rules(sheet: str) -> Iterator[Rule]:
    """Yield the rules in their order, a selector each; those for paper, narrow screens and moved pointers left out."""
    for prelude, body in _blocks(sheet[:_MAX_CHARS]):
        style = declarations(body)
        for selector in _selectors(prelude):
            if all(_KNOWN_PSEUDO.fullmatch(pseudo) for pseudo in _PSEUDO.findall(re.sub(r"\\.", "", selector))):
                yield Rule(selector, style)


def is_for_screens(media: str) -> bool:
    """Return whether one of the queries of a list holds on an ordinary screen."""
    return any(_holds(query) for query in media[:1_000].lower().split(","))


def _holds(query: str) -> bool:
    query = query.replace("not print", "screen")
    for which, value, unit in _FEATURE.findall(query):
        width = float(value if value.count(".") < 2 else 0) * (1 if unit == "px" else 16)
        if (which == "min" and width > _WIDTH) or (which == "max" and width < _WIDTH):
            return False
    return _OTHER_FEATURE.search(query) is None


def _selectors(prelude: str) -> list[str]:
    if "(" in prelude or "[" in prelude:
        return [prelude.strip()]
    return [selector.strip() for selector in prelude.split(",")[:100]]


def _blocks(sheet: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before and in each block of declarations; blocks within those are left out."""
    counts, depth, prelude = [True], 0, ""
    outside: list[str] = []
    inside: list[str] = []
    for kind, text in _parts(sheet):
        if kind == "text":
            if depth < 2:
                (inside if depth else outside).append(text)
        elif depth:
            depth += 1 if kind == "{" else -1
            if depth == 0:
                if counts[-1]:
                    yield prelude, "".join(inside)
                inside.clear()
        else:
            prelude = "".join(outside).rpartition(";")[2].strip()
            outside.clear()
            if kind == "}":
                counts = counts[:-1] or [True]
            elif prelude.lower().startswith(_GROUPS):
                counts.append(counts[-1] and (prelude[:6].lower() != "@media" or is_for_screens(prelude[6:])))
            else:
                depth = 1
    if depth and counts[-1]:
        yield prelude, "".join(inside)


def _parts(sheet: str) -> Iterator[tuple[str, str]]:
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
