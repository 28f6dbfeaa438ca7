"""Parses one policy of a Cedar file: checks its size and its names, checks it against the schema, reads annotations."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, get_args

import cedarpy

from orga.activities.adapters.policy.cedar_types import (
    OPEN_ATTRIBUTES,
    AttributePath,
    Finding,
    Node,
    Types,
    expression_path,
    inferred_types,
    is_open_path,
    operands,
    schema_problems,
    string_literals,
)
from orga.activities.adapters.problem import BrokenPolicies, FileProblem, nearest_name_remedy
from orga.workflows.types.limits import LIMITS
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Purpose
from orga.workflows.types.tool_calls.tools import Effect

CONTEXT_ATTRIBUTES = (
    *OPEN_ATTRIBUTES,
    *("iteration", "depth", "left", "taint", "tainted", "purpose", "tenant", "approved_by", "answer", "plan"),
)
BUDGET_ATTRIBUTES = tuple(limit.rest for limit in LIMITS)
PLAN_ATTRIBUTES = ("steps", "skills", "effects", "tags")
TOOL_ATTRIBUTES = ("name", "effect", "tags", "verified", "approval")

_KNOWN_ATTRIBUTES: dict[AttributePath, tuple[str, ...]] = {
    ("context",): CONTEXT_ATTRIBUTES,
    ("context", "left"): BUDGET_ATTRIBUTES,
    ("context", "plan"): PLAN_ATTRIBUTES,
    ("resource",): TOOL_ATTRIBUTES,
    ("principal",): (),
}
_KNOWN_VALUES: dict[AttributePath, tuple[str, ...]] = {
    ("resource", "effect"): get_args(Effect),
    ("context", "purpose"): get_args(Purpose),
    ("context", "plan", "effects"): get_args(Effect),
}


def _node_findings(node: Any) -> Iterator[Finding]:
    path = expression_path(node)
    if path:
        is_whole_record = len(path) == 2 and is_open_path(path)
        if path == ("context",) or is_whole_record:
            whole = ".".join(path)
            yield Finding(whole, f"{whole} cannot be used as a whole", f"name its attributes: {whole}.NAME")
        return
    operator, inner = operands(node)
    if operator == "has":
        yield from _attribute_findings(expression_path(inner[0]), node["has"]["attr"])
        if expression_path(inner[0]):
            return
    if operator in {"hasTag", "getTag"}:
        yield Finding(operator, f"{operator} finds nothing: no entity has tags of Cedar", "use resource.tags.contains")
    if operator in {"==", "!=", "contains", "containsAny", "containsAll"}:
        yield from _value_findings(inner)
    for part in inner:
        yield from _node_findings(part)


def _attribute_findings(path: AttributePath, attribute: str) -> Iterator[Finding]:
    known = _KNOWN_ATTRIBUTES.get(path)
    if known is not None and attribute not in known:
        problem = f"{'.'.join(path)} never has {attribute!r}"
        yield Finding(attribute, problem, nearest_name_remedy(attribute, known))


def _value_findings(inner: list[Any]) -> Iterator[Finding]:
    known = next((_KNOWN_VALUES[path] for part in inner if (path := expression_path(part)) in _KNOWN_VALUES), None)
    if known is None:
        return
    for word in (word for part in inner for word in string_literals(part)):
        if word not in known:
            yield Finding(word, f"{word!r} is never one of these", nearest_name_remedy(word, known))


_PIECE = re.compile(r'//[^\r\n]*|"(?:\\.|[^"\\])*"|;|\s+|[^\s;"/]+|.', re.DOTALL)
"""Matches a comment, a string, a `;`, white space, or other text. As in Cedar, a carriage return ends a comment."""

_TOKEN = re.compile(r'//[^\r\n]*|"(?:\\.|[^"\\])*"|&&|\|\||[=!<>]=|::|\w+|[(\[{]|[)\]}]|[,;.+\-*!<>]', re.DOTALL)
_JOINING_TOKENS = frozenset({"&&", "||", "if", "when", "unless"})
_SEPARATORS = frozenset({",", ";"})
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OPERATORS = frozenset({"==", "!=", "<=", ">=", "<", ">", ".", "+", "-", "*", "!", "has", "like", "in", "is"})


@dataclass(frozen=True)
class PolicyStatement:
    """The text of one policy, with its file and its first line."""

    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def place_of_text(self, words: str) -> str:
        """Return the place of the first line with these words. If no line has them, return the policy's place."""
        lines = self.text.split("\n")
        found = next((number for number, line in enumerate(lines) if words in line), 0)
        return f"{self.file}:{self.line + found}"


class _BracketGroup:
    """Counts the nesting within one pair of brackets, or outside of all brackets."""

    def __init__(self, opening: str = "") -> None:
        self.opening = opening
        self.depth = 0
        """The depth of the deepest item so far."""
        self._joined = 0
        """Operands of the current item that `&&` and the like join."""
        self._deepest = 0
        """The depth of the deepest operand of the current item."""
        self._operators = 0
        """Operators of the current operand."""
        self._below = 0
        """The depth of the deepest inner group of the current operand."""

    def add(self, token: str) -> None:
        if token in _OPERATORS:
            self._operators += 1
        elif token in _JOINING_TOKENS:
            self._end_operand()
            self._joined += 1
        elif token in _SEPARATORS:
            self.end_item()
        elif token in {"then", "else"}:
            self._end_operand()

    def add_group(self, inner: "_BracketGroup") -> None:
        """Count a closed inner group. Each `[` counts as an operator too, because `a["b"]["c"]` nests."""
        inner.end_item()
        self._operators += inner.opening == "["
        self._below = max(self._below, inner.depth + 1)

    def end_item(self) -> None:
        """Count one of several expressions next to each other. They do not nest, so the deepest one counts."""
        self._end_operand()
        self.depth = max(self.depth, self._joined + self._deepest)
        self._joined = self._deepest = 0

    def _end_operand(self) -> None:
        self._deepest = max(self._deepest, self._operators + self._below)
        self._operators = self._below = 0


def nesting_depth(text: str) -> int:
    """Return an upper bound for the nesting of a policy's expressions in Cedar's parser.

    A chain nests too: the parser reads `a || b || c` as `(a || b) || c`.
    """
    open_groups = [_BracketGroup()]
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _OPENING:
            open_groups.append(_BracketGroup(token))
        elif token not in _CLOSING:
            open_groups[-1].add(token)
        elif len(open_groups) > 1:
            open_groups[-2].add_group(open_groups.pop())
    while len(open_groups) > 1:
        open_groups[-2].add_group(open_groups.pop())
    open_groups[0].end_item()
    return open_groups[0].depth


def split_statements(text: str, file: str) -> Iterator[PolicyStatement]:
    """Yield each policy of a file. Text after the last `;` counts as a policy, so that the parser reports it."""
    begin: int | None = None
    line, counted = 1, 0
    for piece in _PIECE.finditer(text):
        is_gap = piece[0].isspace() or piece[0].startswith("//")
        if begin is None and not is_gap:
            begin = piece.start()
            line, counted = line + text.count("\n", counted, begin), begin
        if piece[0] == ";" and begin is not None:
            yield PolicyStatement(file, line, text[begin : piece.end()].rstrip())
            begin = None
    if begin is not None:
        yield PolicyStatement(file, line, text[begin:].rstrip())


KNOWN_ANNOTATIONS = ("id", "description", "reason", "approval", "expires", "tools", "inactive")

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_NAME = re.compile(r"[^\s,][^,]*")


@dataclass(frozen=True)
class Annotations:
    """The values of a policy's annotations."""

    policy_id: str = ""
    reason: str = ""
    approval: ApprovalTerms | None = None
    tools: tuple[str, ...] | None = None
    is_inactive: bool = False


def _parsed_annotations(statement: PolicyStatement, node: Node) -> Annotations:
    """Return the annotations. Raise BrokenPolicies if one is unknown or misplaced: `@aproval` would allow the call."""
    given: Mapping[str, str | None] = node.get("annotations", {})
    bad = partial(_bad_annotation, statement)
    for name in given:
        if name not in KNOWN_ANNOTATIONS:
            raise bad(name, f"there is no annotation @{name}", nearest_name_remedy(name, KNOWN_ANNOTATIONS))
    is_delegation = node["action"]["op"] == "==" and node["action"]["entity"]["id"] == "delegate"
    if "tools" in given and not (is_delegation and node["effect"] == "permit"):
        remedy = 'put it on permit(principal, action == Action::"delegate", resource)'
        raise bad("tools", "@tools narrows delegations only", remedy)
    if given.get("inactive"):
        raise bad("inactive", "@inactive takes no text: it switches off, whatever it says", "remove one of both")
    return Annotations(
        policy_id=given.get("id") or "",
        reason=given.get("reason") or "",
        approval=_approval_terms(statement, given),
        tools=_listed_names(given["tools"] or "") if "tools" in given else None,
        is_inactive="inactive" in given,
    )


def _bad_annotation(statement: PolicyStatement, name: str, problem: str, remedy: str) -> BrokenPolicies:
    return BrokenPolicies([FileProblem(statement.place_of_text(f"@{name}"), problem, remedy)])


def _approval_terms(statement: PolicyStatement, given: Mapping[str, str | None]) -> ApprovalTerms | None:
    bad = partial(_bad_annotation, statement)
    if "approval" not in given:
        if "expires" in given:
            raise bad("expires", "@expires without @approval", 'add @approval("") or the approvers\' names')
        return None
    approvers = _listed_names(given["approval"] or "")
    if given["approval"] and not approvers:
        raise bad("approval", f"{given['approval']!r} names nobody", 'write names, or "" for anyone')
    if "expires" not in given:
        return ApprovalTerms(approvers=approvers)
    found = _DURATION.fullmatch(given["expires"] or "")
    if found is None or int(found[1]) == 0:
        remedy = 'write a number and a unit: "30m", "24h", "7d"'
        raise bad("expires", f"{given['expires']!r} is no time", remedy)
    return ApprovalTerms(approvers=approvers, expires_s=float(int(found[1]) * _UNITS[found[2]]))


def _listed_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in _NAME.findall(text))


MAX_BYTES = 30_000
"""Bytes of one policy. The work of Cedar's validator can grow with the square of this size."""

MAX_DEPTH = 50
"""Nesting levels of brackets and operators. Cedar cannot read its JSON above 60, and its parser crashes at some 300."""


@dataclass(frozen=True)
class CedarPolicy:
    policy_id: str
    """The policy's `@id`. Without one, `file:line`."""
    statement: PolicyStatement
    node: Node
    """Cedar's JSON form."""
    is_forbid: bool
    annotations: Annotations
    types: Types
    """The types of the arguments, facts and values that it names."""


def parse_policy(statement: PolicyStatement) -> CedarPolicy | None:
    """Return the policy, or None if it is inactive. If it is invalid, raise BrokenPolicies with all problems."""
    if problem := _size_problem(statement):
        raise BrokenPolicies([problem])
    node = _policy_node(statement)
    annotations = _parsed_annotations(statement, node)
    if annotations.is_inactive:
        return None
    types = inferred_types(node)
    if problems := list(_policy_problems(statement, node, types)):
        raise BrokenPolicies(problems)
    policy_id = annotations.policy_id or statement.place
    return CedarPolicy(policy_id, statement, node, node["effect"] == "forbid", annotations, types)


def _size_problem(statement: PolicyStatement) -> FileProblem | None:
    """Return the problem if a policy is too large to be parsed safely, else None."""
    if (size := len(statement.text.encode())) > MAX_BYTES:
        problem = f"it has {size:,} bytes; at most {MAX_BYTES:,} are allowed in one policy"
        return FileProblem(statement.place, problem, "split it into several policies")
    if (depth := nesting_depth(statement.text)) > MAX_DEPTH:
        problem = f"its conditions nest {depth:,} levels deep, chains of && and || included; at most {MAX_DEPTH} may be"
        remedy = 'compare with a list, as in ["a", "b"].contains(...), or split it into several policies'
        return FileProblem(statement.place, problem, remedy)
    return None


def _policy_node(statement: PolicyStatement) -> Node:
    try:
        found: dict[str, Any] = json.loads(cedarpy.policies_to_json_str(statement.text))
    except ValueError as error:
        place = f"{statement.file}:{_error_line(statement)}"
        raise BrokenPolicies([FileProblem(place, f"cannot be parsed: {error}", "correct it there or before")]) from None
    if found["templates"]:
        remedy = "write the principal or resource out"
        raise BrokenPolicies([FileProblem(statement.place, "templates cannot be used here", remedy)])
    (node,) = found["staticPolicies"].values()
    return node


def _error_line(statement: PolicyStatement) -> int:
    """Return the number of the first line that the parser rejects. Without that line, the text is only incomplete."""
    lines = statement.text.split("\n")

    def is_wrong(number: int) -> bool:
        try:
            cedarpy.policies_to_json_str("\n".join(lines[:number]))
        except ValueError as error:
            return "unexpected end of input" not in str(error)
        return False

    return statement.line + bisect_left(range(1, len(lines)), True, key=is_wrong)


def _policy_problems(statement: PolicyStatement, node: Node, types: Types) -> Iterator[FileProblem]:
    findings = (found for condition in node["conditions"] for found in _node_findings(condition["body"]))
    for found in chain(findings, schema_problems(statement.text, types)):
        yield FileProblem(statement.place_of_text(found.words), found.problem, found.remedy)
