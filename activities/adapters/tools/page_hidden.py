"""The elements of a page that its reader would not see, as far as the page alone tells."""

from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from orga.activities.hiding_style import declarations, hiding, shows
from orga.activities.style_sheet import Rule, is_for_screens, rules

_DROPPED = (
    "script, style, noscript, noembed, noframes, template, nav, footer, iframe, object, embed, audio, video, svg, "
    "canvas, select, datalist, button, progress, meter, dialog, rp, annotation, annotation-xml, mphantom, body title, "
    "[hidden], [popover], [aria-hidden=true i], [role=navigation]"
)
_MAX_RULES = 5_000
_MAX_HIDING_RULES = 300
_MAX_SHOWING_RULES = 300
_INLINE = (9, 0, 0)

_Weight = tuple[bool, tuple[int, int, int], int]
"""Importance, specificity, place."""


@dataclass
class _Winners:
    """By element and name of a declaration: the weight that decides, and whether it hides."""

    found: dict[tuple[int, str], tuple[_Weight, bool]] = field(
        default_factory=dict[tuple[int, str], tuple[_Weight, bool]]
    )

    def weigh(self, node: int, name: str, weight: _Weight, *, hides: bool) -> None:
        known = self.found.get((node, name))
        if known is None or known[0] <= weight:
            self.found[node, name] = weight, hides

    def hidden(self) -> set[int]:
        return {node for (node, _), (_, hides) in self.found.items() if hides}


def hidden_nodes(page: LexborHTMLParser) -> set[int]:
    """Return the ids of elements that are not shown, each with all that is in it.

    A style sheet's rules are weighed against others as a browser does it. What comes from elsewhere is not known:
    sheets and scripts of other addresses, layout.
    """
    return {node.mem_id for node in page.css(_DROPPED)} | _hidden_by_style(page)


def _hidden_by_style(page: LexborHTMLParser) -> set[int]:
    winners = _Winners()
    sheet_rules = _sheet_rules(page)
    names = _add_hiding(page, sheet_rules, winners)
    candidates = {node for node, _ in winners.found}
    if candidates:
        _add_showing(page, sheet_rules, names, candidates, winners)
    for node in page.css("[style]"):
        style = declarations(node.attributes.get("style") or "")
        hides = hiding(style)
        for name in hides:
            winners.weigh(node.mem_id, name, (style[name][1], _INLINE, 0), hides=True)
        if node.mem_id in candidates:
            for name in style.keys() & names - hides:
                if (node.mem_id, name) in winners.found and shows(name, style[name][0]):
                    winners.weigh(node.mem_id, name, (style[name][1], _INLINE, 0), hides=False)
    return winners.hidden()


def _sheet_rules(page: LexborHTMLParser) -> list[Rule]:
    ignored = {node.mem_id for node in page.css("noscript style, template style")}
    found: list[Rule] = []
    for node in page.css("style"):
        if node.mem_id in ignored or not is_for_screens(node.attributes.get("media") or ""):
            continue
        for rule in rules(node.text()):
            if len(found) == _MAX_RULES:
                return found
            found.append(rule)
    return found


def _add_hiding(page: LexborHTMLParser, sheet_rules: list[Rule], winners: _Winners) -> set[str]:
    names: set[str] = set()
    count = 0
    for place, rule in enumerate(sheet_rules):
        if count < _MAX_HIDING_RULES and (hides := hiding(rule.style)):
            count += 1
            names |= hides
            weights = {name: (rule.style[name][1], rule.weight(), place) for name in hides}
            for node in _matched(page, rule.selector):
                for name, weight in weights.items():
                    winners.weigh(node.mem_id, name, weight, hides=True)
    return names


def _add_showing(
    page: LexborHTMLParser, sheet_rules: list[Rule], names: set[str], candidates: set[int], winners: _Winners
) -> None:
    count = 0
    for place, rule in enumerate(sheet_rules):
        others = rule.style.keys() & names - hiding(rule.style)
        shown = {name for name in others if shows(name, rule.style[name][0])}
        if count >= _MAX_SHOWING_RULES or not shown:
            continue
        count += 1
        weights = {name: (rule.style[name][1], rule.weight(), place) for name in shown}
        for node in _matched(page, rule.selector):
            for name, weight in weights.items() if node.mem_id in candidates else ():
                if (node.mem_id, name) in winners.found:
                    winners.weigh(node.mem_id, name, weight, hides=False)


def _matched(page: LexborHTMLParser, selector: str) -> list[LexborNode]:
    try:
        return page.css(selector)
    except SelectolaxError:
        return []  # neither would a browser use the rule
