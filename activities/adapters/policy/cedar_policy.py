"""One policy of a Cedar file: parsed, checked against the schema, its annotations read."""

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cedarpy

from orga.activities.adapters.policy.cedar_annotations import Annotations, BadAnnotation, annotations
from orga.activities.adapters.policy.cedar_lint import findings
from orga.activities.adapters.policy.cedar_paths import Node
from orga.activities.adapters.policy.cedar_schema import misfits
from orga.activities.adapters.policy.cedar_statements import Statement, depth_of
from orga.activities.adapters.policy.cedar_types import Types, types_of
from orga.activities.adapters.policy.problems import BrokenPolicies
from orga.activities.adapters.problem import Problem

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
