"""Paths in a Cedar expression, read from Cedar's JSON form: `context.arguments.path` and the like."""

from typing import Any, cast

Node = dict[str, Any]
Path = tuple[str, ...]

OPEN = ("arguments", "trusted")
"""Attributes of the context whose own attributes the policies decide."""


def path_of(node: Any) -> Path:
    """Return the variable and the attributes that an expression names; nothing for any other expression."""
    attributes: list[str] = []
    while True:
        match node:
            case {"Var": str(name)}:
                return (name, *reversed(attributes))
            case {".": {"left": left, "attr": str(attribute)}}:
                attributes.append(attribute)
                node = left
            case _:
                return ()


def is_open(path: Path) -> bool:
    """Tell whether a path leads to what a call or a run brings along."""
    return path[:1] == ("context",) and path[1:2] != () and path[1] in OPEN


def operands(node: Any) -> tuple[str, list[Any]]:
    """Return an operator and the expressions that it works on, in order."""
    if not isinstance(node, dict) or len(cast("Node", node)) != 1:
        return "", []
    ((operator, inner),) = cast("Node", node).items()
    if operator in {"Value", "Var", "Slot"}:
        return operator, []
    if isinstance(inner, list):
        return operator, cast("list[Any]", inner)
    fields = cast("Node", inner) if isinstance(inner, dict) else {}
    if operator == "Record":
        return operator, list(fields.values())
    return operator, [fields[name] for name in ("if", "then", "else", "left", "right", "arg", "in") if name in fields]
