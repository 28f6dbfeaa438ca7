"""What Cedar's validator lets pass and what makes a rule never hold: misspelled names behind `has`, and words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from orga.activities.adapters.policy.cedar_paths import OPEN, Node, Path, operands, path_of
from orga.activities.adapters.policy.problems import nearest
from orga.workflows.types.gate import Purpose
from orga.workflows.types.tools import Effect

CONTEXT = (
    *OPEN,
    *("iteration", "depth", "left", "taint", "tainted", "purpose", "tenant", "approved_by", "answer", "plan"),
)
LEFT = ("iterations", "tokens", "cost_usd", "time_s", "model_calls", "tool_calls")
PLAN = ("steps", "skills", "effects", "tags")
TOOL = ("name", "effect", "tags", "verified", "approval")

_ATTRIBUTES: dict[Path, tuple[str, ...]] = {
    ("context",): CONTEXT,
    ("context", "left"): LEFT,
    ("context", "plan"): PLAN,
    ("resource",): TOOL,
    ("principal",): (),
}
_WORDS: dict[Path, tuple[str, ...]] = {
    ("resource", "effect"): get_args(Effect),
    ("context", "purpose"): get_args(Purpose),
    ("context", "plan", "effects"): get_args(Effect),
}


@dataclass(frozen=True)
class Finding:
    """One finding; `words` stand in the policy where it is."""

    words: str
    problem: str
    remedy: str


def findings(policy: Node) -> Iterator[Finding]:
    """Yield what is wrong in the conditions of a policy."""
    for condition in policy["conditions"]:
        yield from _in(condition["body"])


def _in(node: Any) -> Iterator[Finding]:
    path = path_of(node)
    if path:
        if path == ("context",) or (path[:1] == ("context",) and path[1:] in {(name,) for name in OPEN}):
            whole = ".".join(path)
            yield Finding(whole, f"{whole} cannot be used as a whole", f"name its attributes: {whole}.NAME")
        return
    operator, inner = operands(node)
    if operator == "has":
        yield from _misspelled(path_of(inner[0]), node["has"]["attr"])
        if path_of(inner[0]):
            return
    if operator in {"hasTag", "getTag"}:
        yield Finding(operator, f"{operator} finds nothing: no entity has tags of Cedar", "use resource.tags.contains")
    if operator in {"==", "!=", "contains", "containsAny", "containsAll"}:
        yield from _strange_words(inner)
    for part in inner:
        yield from _in(part)


def _misspelled(path: Path, attribute: str) -> Iterator[Finding]:
    known = _ATTRIBUTES.get(path)
    if known is not None and attribute not in known:
        yield Finding(attribute, f"{'.'.join(path)} never has {attribute!r}", nearest(attribute, known))


def _strange_words(inner: list[Any]) -> Iterator[Finding]:
    known = next((_WORDS[path] for part in inner if (path := path_of(part)) in _WORDS), None)
    if known is None:
        return
    for word in (word for part in inner for word in _literals(part)):
        if word not in known:
            yield Finding(word, f"{word!r} is never one of these", nearest(word, known))


def _literals(node: Any) -> Iterator[str]:
    match node:
        case {"Value": str(word)}:
            yield word
        case {"Set": list(parts)}:  # pyright: ignore[reportUnknownVariableType]
            for part in parts:  # pyright: ignore[reportUnknownVariableType]
                yield from _literals(part)
        case _:
            return
