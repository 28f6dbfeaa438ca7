"""One policy of a Cedar file: parsed, checked against the schema, linted, and its annotations read."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import cedarpy

from orga.activities.adapters.policy.cedar_types import OPEN, Node, Path, Types, misfits, operands, path_of, types_of
from orga.activities.adapters.policy.problems import BrokenPolicies, nearest
from orga.activities.adapters.problem import Problem
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Purpose
from orga.workflows.types.tool_calls.tools import Effect

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


_PIECE = re.compile(r'//[^\r\n]*|"(?:\\.|[^"\\])*"|;|\s+|[^\s;"/]+|.', re.DOTALL)
"""A comment, a string, an end, a gap, or a part of a policy. A carriage return ends a comment, as in Cedar."""

_TOKEN = re.compile(r'//[^\r\n]*|"(?:\\.|[^"\\])*"|&&|\|\||[=!<>]=|::|\w+|[(\[{]|[)\]}]|[,;.+\-*!<>]', re.DOTALL)
_JOINING = frozenset({"&&", "||", "if", "when", "unless"})
_SEPARATORS = frozenset({",", ";"})
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OPERATORS = frozenset({"==", "!=", "<=", ">=", "<", ">", ".", "+", "-", "*", "!", "has", "like", "in", "is"})


@dataclass(frozen=True)
class Statement:
    """The text of one policy, and where it stands."""

    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def place_of(self, words: str) -> str:
        """Return the place of the first line that holds these words, else of the policy."""
        lines = self.text.split("\n")
        found = next((number for number, line in enumerate(lines) if words in line), 0)
        return f"{self.file}:{self.line + found}"


class _Group:
    """What stands between two brackets, as far as it was read."""

    def __init__(self, opening: str = "") -> None:
        self.opening = opening
        self.depth = 0
        self._joined = self._deepest = self._operators = self._below = 0

    def add(self, token: str) -> None:
        """Count a token that is no bracket."""
        if token in _OPERATORS:
            self._operators += 1
        elif token in _JOINING:
            self._end_operand()
            self._joined += 1
        elif token in _SEPARATORS:
            self.end_item()
        elif token in {"then", "else"}:
            self._end_operand()

    def add_group(self, inner: "_Group") -> None:
        """Count a group that was closed; `a["b"]["c"]` nests although no bracket stands in another."""
        inner.end_item()
        self._operators += inner.opening == "["
        self._below = max(self._below, inner.depth + 1)

    def end_item(self) -> None:
        """Count one of several expressions: they do not nest in each other."""
        self._end_operand()
        self.depth = max(self.depth, self._joined + self._deepest)
        self._joined = self._deepest = 0

    def _end_operand(self) -> None:
        self._deepest = max(self._deepest, self._operators + self._below)
        self._operators = self._below = 0


def depth_of(text: str) -> int:
    """Return how deeply the expressions of a policy may nest: no less than its parser would find.

    A chain nests as well: `a || b || c` is `(a || b) || c`.
    """
    open_groups = [_Group()]
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _OPENING:
            open_groups.append(_Group(token))
        elif token not in _CLOSING:
            open_groups[-1].add(token)
        elif len(open_groups) > 1:
            _close(open_groups)
    while len(open_groups) > 1:
        _close(open_groups)
    open_groups[0].end_item()
    return open_groups[0].depth


def _close(open_groups: list[_Group]) -> None:
    inner = open_groups.pop()
    open_groups[-1].add_group(inner)


def statements(text: str, file: str) -> Iterator[Statement]:
    """Yield the policies; what stands behind the last `;` is one, too, so that it is not lost."""
    begin: int | None = None
    line, counted = 1, 0
    for piece in _PIECE.finditer(text):
        is_gap = piece[0].isspace() or piece[0].startswith("//")
        if begin is None and not is_gap:
            begin = piece.start()
            line, counted = line + text.count("\n", counted, begin), begin
        if piece[0] == ";" and begin is not None:
            yield Statement(file, line, text[begin : piece.end()].rstrip())
            begin = None
    if begin is not None:
        yield Statement(file, line, text[begin:].rstrip())


KNOWN = ("id", "description", "reason", "approval", "expires", "tools", "inactive")

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_NAME = re.compile(r"[^\s,][^,]*")


@dataclass(frozen=True)
class Annotations:
    """The annotations that orga knows."""

    policy_id: str = ""
    reason: str = ""
    approval: ApprovalTerms | None = None
    tools: tuple[str, ...] | None = None
    is_inactive: bool = False


class BadAnnotation(ValueError):
    """An annotation that says nothing orga could follow. `name` is its own."""

    def __init__(self, name: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.name = name
        self.remedy = remedy


def annotations(given: Mapping[str, str | None], effect: str, action: str) -> Annotations:
    """Return what the annotations of a policy say.

    Args:
        given: As Cedar reads them; None stands for one without a value.
        effect: `permit` or `forbid`.
        action: The only action that the policy is about; empty when it is about more.

    Raises:
        BadAnnotation: One that is unknown or cannot stand here: a misspelled `@approval` would let the call through.
    """
    for name in given:
        if name not in KNOWN:
            raise BadAnnotation(name, f"there is no annotation @{name}", nearest(name, KNOWN))
    if "tools" in given and (effect, action) != ("permit", "delegate"):
        raise BadAnnotation(
            "tools",
            "@tools narrows delegations only",
            'put it on permit(principal, action == Action::"delegate", resource)',
        )
    if given.get("inactive"):
        raise BadAnnotation(
            "inactive", "@inactive takes no text: it switches off, whatever it says", "remove one of both"
        )
    return Annotations(
        policy_id=given.get("id") or "",
        reason=given.get("reason") or "",
        approval=_approval(given),
        tools=_names(given["tools"] or "") if "tools" in given else None,
        is_inactive="inactive" in given,
    )


def _approval(given: Mapping[str, str | None]) -> ApprovalTerms | None:
    if "approval" not in given:
        if "expires" in given:
            raise BadAnnotation("expires", "@expires without @approval", 'add @approval("") or the approvers\' names')
        return None
    approvers = _names(given["approval"] or "")
    if given["approval"] and not approvers:
        raise BadAnnotation("approval", f"{given['approval']!r} names nobody", 'write names, or "" for anyone')
    if "expires" not in given:
        return ApprovalTerms(approvers=approvers)
    found = _DURATION.fullmatch(given["expires"] or "")
    if found is None or int(found[1]) == 0:
        raise BadAnnotation(
            "expires", f"{given['expires']!r} is no time", 'write a number and a unit: "30m", "24h", "7d"'
        )
    return ApprovalTerms(approvers=approvers, expires_s=float(int(found[1]) * _UNITS[found[2]]))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in _NAME.findall(text))


MAX_BYTES = 30_000
"""Of one policy: the validator's work can grow with the square of it."""

MAX_DEPTH = 50
"""Of brackets and operators. Cedar reads back no policy deeper than 60, and its parser crashes at some 300."""


@dataclass(frozen=True)
class CedarPolicy:
    """A policy that can be used."""

    policy_id: str
    """Its `@id`, else `file:line`."""
    statement: Statement
    node: Node
    """Cedar's JSON form."""
    is_forbid: bool
    says: Annotations
    types: Types


def parsed_policy(statement: Statement) -> CedarPolicy | None:
    """Return the policy; None for one that is inactive, which is only parsed.

    Raises:
        BrokenPolicies: It cannot be parsed or does not fit the schema, with each reason.
    """
    if problem := _too_large(statement):
        raise BrokenPolicies([problem])
    node = _node(statement)
    try:
        says = annotations(node.get("annotations", {}), node["effect"], _only_action(node))
    except BadAnnotation as error:
        place = statement.place_of(f"@{error.name}")
        raise BrokenPolicies([Problem(place, str(error), error.remedy)]) from None
    if says.is_inactive:
        return None
    types = types_of(node)
    if problems := list(_problems(statement, node, types)):
        raise BrokenPolicies(problems)
    policy_id = says.policy_id or statement.place
    return CedarPolicy(policy_id, statement, node, node["effect"] == "forbid", says, types)


def _too_large(statement: Statement) -> Problem | None:
    """Return why a policy is not parsed at all, or None."""
    if (size := len(statement.text.encode())) > MAX_BYTES:
        problem = f"it has {size:,} bytes; at most {MAX_BYTES:,} are allowed in one policy"
        return Problem(statement.place, problem, "split it into several policies")
    if (depth := depth_of(statement.text)) > MAX_DEPTH:
        problem = f"its conditions nest {depth:,} levels deep, chains of && and || included; at most {MAX_DEPTH} may be"
        remedy = 'compare with a list, as in ["a", "b"].contains(...), or split it into several policies'
        return Problem(statement.place, problem, remedy)
    return None


def _node(statement: Statement) -> Node:
    try:
        found: dict[str, Any] = json.loads(cedarpy.policies_to_json_str(statement.text))
    except ValueError as error:
        place = f"{statement.file}:{_line_of_error(statement)}"
        raise BrokenPolicies([Problem(place, f"cannot be parsed: {error}", "correct it there or before")]) from None
    if found["templates"]:
        remedy = "write the principal or resource out"
        raise BrokenPolicies([Problem(statement.place, "templates cannot be used here", remedy)])
    (node,) = found["staticPolicies"].values()
    return node


def _line_of_error(statement: Statement) -> int:
    """Return the first line that the parser stumbles over: until it, more text was all that it missed."""
    lines = statement.text.split("\n")  # other line ends may lie in comments, where brackets do not count

    def is_wrong(number: int) -> bool:
        try:
            cedarpy.policies_to_json_str("\n".join(lines[:number]))
        except ValueError as error:
            return "unexpected end of input" not in str(error)
        return False

    return statement.line + bisect_left(range(1, len(lines)), True, key=is_wrong)


def _problems(statement: Statement, node: Node, types: Types) -> Iterator[Problem]:
    for found in findings(node):
        yield Problem(statement.place_of(found.words), found.problem, found.remedy)
    for words, problem, remedy in misfits(statement.text, types):
        yield Problem(statement.place_of(words), problem, remedy)


def _only_action(node: Node) -> str:
    scope = node["action"]
    return scope["entity"]["id"] if scope["op"] == "==" else ""
