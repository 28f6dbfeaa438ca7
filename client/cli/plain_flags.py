"""A flag in the help of a command: it takes nothing, so no type stands behind it."""

from typing import Any, TypeVar

C = TypeVar("C", bound=Any)


def with_plain_flags(command: C) -> C:
    """Return the command, and all in its group, with flags whose help names no type; `--help` is one of them."""
    helping = command.get_help_option(command.context_class(command))
    for option in (*command.params, *([helping] if helping else [])):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        with_plain_flags(inner)
    return command
