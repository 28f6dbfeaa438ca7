"""The help of commands: `-h` asks for it, too, and a flag takes nothing, so it names no type."""

from typing import Any, TypeVar

C = TypeVar("C", bound=Any)

HELP = ["--help", "-h"]


def with_plain_flags(command: C) -> C:
    """Return the command, and all in its group, with `-h` for `--help` and flags whose help names no type."""
    command.context_settings = {**command.context_settings, "help_option_names": HELP}
    helping = command.get_help_option(command.context_class(command, help_option_names=HELP))
    for option in (*command.params, *([helping] if helping else [])):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        with_plain_flags(inner)
    return command
