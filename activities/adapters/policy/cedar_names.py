"""Finds unknown names in policies. A policy about a tool, agent, tag or argument that does not exist is useless."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, NamedTuple, cast

from orga.activities.adapters.policy.cedar_policy import CedarPolicy
from orga.activities.adapters.policy.cedar_types import (
    THIS_RUN,
    AttributePath,
    Node,
    expression_path,
    operands,
    string_literals,
)
from orga.activities.adapters.problem import FileProblem
from orga.workflows.types.json_text import as_object
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.loop_tools import LOOP_TOOLS
from orga.workflows.types.tool_calls.mcp import DEFINITIONS
from orga.workflows.types.tool_calls.tools import ToolSpec

_RESOURCE_NAME = ("resource", "name")
_COMPARED_PATHS: dict[AttributePath, str] = {
    _RESOURCE_NAME: "tool",
    ("resource", "tags"): "tag",
    ("context", "taint"): "source",
    ("context", "plan", "skills"): "skill",
    ("context", "plan", "tags"): "tag",
}
"""The paths that policies compare with names, and the kind of these names.

A `source` of taint is a tool, or the definitions of an MCP server.
"""
_EQUALITY_OPERATORS = frozenset({"==", "!=", "in", "contains", "containsAny", "containsAll"})
_DELEGATE_PATH = ("context", "arguments", "agent")
"""The path to the other agent of a delegation."""
_ACTION_BY_TOOL = {tool.name: tool.action for tool in LOOP_TOOLS.values() if tool.action != "tool_call"}
"""The actions of the loop's own tools that have an action of their own. These tools are never a resource."""

_ENTITY_TYPES = ("Tool", "Agent", "Run")
"""Entity types whose ids are names."""
_TYPES_WITHOUT_ATTRIBUTES = ("string", "integer", "number", "boolean", "null", "array")


class _Mention(NamedTuple):
    """A name in a policy."""

    kind: str
    """The kind of thing that has the name: tool, agent, run, tag, source or skill."""
    name: str


@dataclass(frozen=True)
class PolicyVocabulary:
    """The tools and agents that exist, so that policies can name them."""

    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    agents: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()
    """Globs of tools that may exist, but could not be listed."""

    def knows(self, kind: str, name: str) -> bool:
        """Return whether a thing of this kind (see `_Mention`) and name exists or may exist."""
        match kind:
            case "tool" | "source" | "skill":
                may_exist = any(fnmatchcase(name, glob) for glob in self.unseen)
            case "tag":
                may_exist = bool(self.unseen)
            case _:
                may_exist = False
        is_definitions = kind == "source" and name.startswith(DEFINITIONS)
        return may_exist or is_definitions or name in self.names(kind)

    def names(self, kind: str) -> Iterable[str]:
        """Return the known names of this kind."""
        match kind:
            case "agent":
                return self.agents
            case "tag":
                return {tag for spec in self.tools.values() for tag in spec.options.tags}
            case "run":
                return (THIS_RUN,)
            case "skill":
                return (*self.tools, *self.agents)
            case _:
                return self.tools


def unknown_name_problems(policy: CedarPolicy, known: PolicyVocabulary) -> Iterator[FileProblem]:
    mentions = [*_mentions(policy.node), *(_Mention("tool", name) for name in policy.annotations.tools or ())]
    for kind, name in dict.fromkeys(mentions):
        if not known.knows(kind, name):
            shown_kind = "tool" if kind == "source" else kind
            hint = known_names_hint(name, known.names(kind))
            yield _name_problem(policy, name, f"there is no {shown_kind} {name!r}", hint)
    yield from _action_as_resource_problems(policy)
    yield from _unmatched_pattern_problems(policy, known)
    yield from _unknown_argument_problems(policy, known)


def _action_as_resource_problems(policy: CedarPolicy) -> Iterator[FileProblem]:
    for name in dict.fromkeys(_entity_ids([policy.node["resource"], policy.node["conditions"]], "Tool")):
        if action := _ACTION_BY_TOOL.get(name):
            remedy = f'write action == Action::"{action}"'
            yield _name_problem(policy, name, f"{name} is an action of its own, never a resource", remedy)


def _unmatched_pattern_problems(policy: CedarPolicy, known: PolicyVocabulary) -> Iterator[FileProblem]:
    if known.unseen:
        return
    for node in _nodes(policy.node["conditions"]):
        pattern = node.get("like", {}).get("pattern")
        if pattern and expression_path(node["like"]["left"]) == _RESOURCE_NAME:
            glob = "".join("*" if part == "Wildcard" else escape(part["Literal"]) for part in pattern)
            if not any(fnmatchcase(name, glob) for name in known.tools):
                yield _name_problem(policy, glob, f"no tool is like {glob!r}", known_names_hint(glob, known.tools))


def _unknown_argument_problems(policy: CedarPolicy, known: PolicyVocabulary) -> Iterator[FileProblem]:
    governed = _governed_tools(policy, known, _named_tools(policy.node))
    if governed is None:
        return
    argument_paths = [path[1:] for path in policy.types if path[:1] == ("arguments",) and len(path) > 1]
    for path in argument_paths:
        if not any(_has_path(spec.parameters, path) for spec in governed):
            shown = ".".join(path)
            whose = f"{governed[0].name} has" if len(governed) == 1 else "the tools that it is about have"
            names = {name for spec in governed for name in _properties(spec.parameters) or ()}
            yield _name_problem(policy, path[-1], f"{whose} no argument {shown!r}", known_names_hint(shown, names))


def _governed_tools(policy: CedarPolicy, known: PolicyVocabulary, named: Sequence[str]) -> list[ToolSpec] | None:
    """Return the tools whose calls a policy judges. An empty `named` means every tool.

    None if they are unknown, because a named tool may exist but is not listed, or if no tool is known.
    """
    actions = _entity_ids(policy.node["action"], "Action")
    if actions and set(actions) <= {*_ACTION_BY_TOOL.values(), "respond", "plan"}:
        named_by_action = (name for name, action in _ACTION_BY_TOOL.items() if action in actions)
        return [known.tools[name] for name in named_by_action if name in known.tools]
    wanted = named or [*known.tools]
    may_be_unseen = not named or any(name not in known.tools for name in named)
    if known.unseen and may_be_unseen:
        return None
    return [known.tools[name] for name in wanted if name in known.tools] or None


def _named_tools(policy: Node) -> list[str]:
    """Return the tools that a policy is limited to, by its scope and its `when` conditions.

    If one of them contains a negation, none counts, because a tool in it may be one that the policy excludes.
    """
    when = [condition["body"] for condition in policy["conditions"] if condition["kind"] == "when"]
    if any("!" in node or "!=" in node for node in _nodes(when)):
        when = []
    names = [
        *_entity_ids(policy["resource"], "Tool"),
        *(mention.name for body in when for mention in _condition_mentions(body) if mention.kind == "tool"),
    ]
    return list(dict.fromkeys(names))


def _has_path(schema: Any, path: AttributePath) -> bool:
    properties = _properties(schema)
    if not path or properties is None:
        return True
    return path[0] in properties and _has_path(properties[path[0]], path[1:])


def _properties(schema: Any) -> dict[str, Any] | None:
    """Return the attributes that a value can have, by name, or None if it can have any. A scalar or array has none."""
    given = as_object(schema)
    if given.get("type") in _TYPES_WITHOUT_ATTRIBUTES:
        return {}
    found = given.get("properties")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _mentions(policy: Node) -> Iterator[_Mention]:
    """Yield every name in the scope and the conditions of a policy."""
    for scope in ("principal", "resource"):
        for kind in _ENTITY_TYPES:
            yield from (_Mention(kind.lower(), name) for name in _entity_ids(policy[scope], kind))
    is_delegation = _entity_ids(policy["action"], "Action") == ["delegate"]
    for condition in policy["conditions"]:
        yield from _condition_mentions(condition["body"])
        if is_delegation:
            yield from (_Mention("agent", word) for word in _compared_literals(condition["body"], _DELEGATE_PATH))


def _compared_literals(body: Any, path: AttributePath) -> Iterator[str]:
    for operator, inner in map(operands, _nodes(body)):
        if operator in _EQUALITY_OPERATORS and path in map(expression_path, inner):
            yield from (word for part in inner for word in string_literals(part))


def _nodes(node: Any) -> Iterator[Node]:
    """Yield the node and every object within it."""
    waiting: list[Any] = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield cast("Node", here)
            waiting += reversed(cast("Node", here).values())
        elif isinstance(here, list):
            waiting += reversed(cast("list[Any]", here))


def _condition_mentions(node: Any) -> Iterator[_Mention]:
    if isinstance(node, dict) and "Value" in node:
        for kind in _ENTITY_TYPES:
            yield from (_Mention(kind.lower(), name) for name in _entity_ids(cast("Node", node), kind))
    operator, inner = operands(node)
    if operator in _EQUALITY_OPERATORS:
        paths = {expression_path(part) for part in inner}
        if kind := next((kind for path, kind in _COMPARED_PATHS.items() if path in paths), ""):
            yield from (_Mention(kind, word) for part in inner for word in string_literals(part))
    for part in inner:
        yield from _condition_mentions(part)


def _entity_ids(node: Any, kind: str) -> list[str]:
    """Return the ids of all entities of one type within a node."""
    return [found["id"] for found in _nodes(node) if found.get("type") == kind and isinstance(found.get("id"), str)]


def _name_problem(policy: CedarPolicy, name: str, problem: str, remedy: str) -> FileProblem:
    return FileProblem(policy.statement.place_of_text(name), f"{problem}, so it protects nothing", remedy)
