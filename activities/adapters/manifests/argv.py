"""The argument vector of a command: one element of the template is one element of it, whatever the values hold."""

from collections.abc import Mapping

from orga.activities.adapters.manifests.argument import Argument
from orga.activities.adapters.manifests.manifest import ArgvPart, Command
from orga.activities.adapters.manifests.scalar_values import looks_like_a_flag
from orga.activities.adapters.manifests.template import Slot, filled, only_slot, parsed, slots
from orga.activities.adapters.manifests.values import Values, as_texts, invalid
from orga.activities.adapters.sandbox.argv_size import MAX_ARGV_BYTES, is_too_much


def argv_of(command: Command, declared: Mapping[str, Argument], values: Values) -> list[str]:
    """Return the program and its arguments.

    Raises:
        ToolError: Kind InvalidArguments: a value that could become a flag, or more than a program can be passed.
    """
    _refuse_flags(command, declared, values)
    argv = [element for part in command.argv if _stands(part, values) for element in _elements(part, values)]
    if is_too_much(argv):
        raise invalid(f"more than {MAX_ARGV_BYTES:,} bytes together; shorten them")
    return argv


def _stands(part: ArgvPart, values: Values) -> bool:
    value = values.get(part.when)
    return not part.when or not (value is None or value is False or value == ())


def _elements(part: ArgvPart, values: Values) -> list[str]:
    found: list[str] = []
    for template in map(parsed, part.argv):
        only = only_slot(template)
        found += as_texts(values.get(only.name)) if only else [filled(template, lambda slot: _one(values, slot))]
    return found


def _one(values: Values, slot: Slot) -> str:
    """Return the only text of a value; a manifest with another is refused when it is read."""
    (text,) = as_texts(values[slot.name])
    return text


def _refuse_flags(command: Command, declared: Mapping[str, Argument], values: Values) -> None:
    used = {slot.name for part in command.argv for template in part.argv for slot in slots(parsed(template))}
    for name in sorted(used & values.keys()):
        items = declared[name].items
        may = declared[name].allow_dash or (items is not None and items.allow_dash)
        if not may and any(looks_like_a_flag(text) for text in as_texts(values[name])):
            raise invalid(f"{name}: begins with a dash, so the program could take it for a flag; write it without")
