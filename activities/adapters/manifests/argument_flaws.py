"""What is wrong with the declaration of an argument."""

from collections.abc import Iterator
from pathlib import Path

from orga.activities.adapters.manifests.argument import Argument
from orga.activities.adapters.manifests.flaw import Flaw
from orga.activities.adapters.manifests.kinds import KINDS, Ground, schema_of
from orga.activities.adapters.manifests.network_values import scope_entry
from orga.activities.adapters.schemas.arguments import argument_errors, schema_problem
from orga.activities.adapters.tools.root import Root
from orga.activities.ports import ToolError
from orga.workflows.types.text import LinearPattern

EVERY_TYPE = frozenset({"type", "description", "required", "default"})


def argument_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    """Yield every one of them."""
    found = [*_misplaced(key, argument), *_contradictions(key, argument), *_broken(key, argument)]
    yield from found or _unfit(key, argument)


def _misplaced(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    kind = KINDS[argument.type]
    for name in sorted(argument.model_fields_set - EVERY_TYPE - kind.keys):
        remedy = f"remove it; {argument.type} knows: {', '.join(sorted(kind.keys)) or 'no further key'}"
        yield Flaw((*key, name), f"{name} means nothing for type {argument.type!r}", remedy)
    if argument.type == "enum" and not argument.allowed:
        yield Flaw(key, "an enum needs its values", 'add allowed = ["...", "..."]')
    if argument.type == "array":
        yield from _items(key, argument)


def _items(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    items = argument.items
    if items is None or items.type == "array":
        yield Flaw(key, "an array needs the type of its items, which is no array", 'add items = { type = "string" }')
        return
    if {"required", "default"} & items.model_fields_set:
        yield Flaw((*key, "items"), "an item is neither required nor has it a default", "say so of the array")
    yield from argument_flaws((*key, "items"), items)


def _contradictions(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    if argument.required and argument.default is not None:
        yield Flaw((*key, "default"), "a required argument needs no default", "remove required or default")
    if argument.min is not None and argument.max is not None and argument.min > argument.max:
        yield Flaw((*key, "min"), "min is above max", "swap them")
    if argument.type in ("string", "array") and any(
        limit is not None and (limit < 0 or limit != int(limit)) for limit in (argument.min, argument.max)
    ):
        yield Flaw((*key, "min"), "a length is a whole number from 0", "mend min and max")


def _broken(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    if argument.pattern is not None:
        try:
            LinearPattern(argument.pattern)
        except ValueError as error:
            yield Flaw((*key, "pattern"), f"the pattern {error}", "write one of RE2")
    for entry in argument.scope:
        try:
            scope_entry(entry)
        except ValueError as error:
            yield Flaw((*key, "scope"), f"{entry!r} {error}", "write a network, a host, or *.host")
    if problem := schema_problem(schema_of(argument.without_default())):
        yield Flaw(key, problem, "mend pattern, allowed, min or max")


def _unfit(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    bare = argument.without_values()
    for value in argument.allowed or ():
        if problem := _problem(bare, value):
            yield Flaw((*key, "allowed"), f"{value!r} is no {argument.type}: {problem}", "mend the value")
    if argument.default is not None and (problem := _problem(argument, argument.default)):
        yield Flaw((*key, "default"), f"{argument.default!r} does not fit: {problem}", "mend the default")


def _problem(argument: Argument, value: object) -> str:
    """Return why a value is none of the argument, or ""; whether a path exists is a matter of the call."""
    try:
        if errors := argument_errors(schema_of(argument), value):
            return "; ".join(errors)
        KINDS[argument.type].read(value, argument.without_existence(), Ground(Root(Path.cwd())))
    except (ValueError, TypeError, ToolError) as error:
        return str(error)
    return ""
