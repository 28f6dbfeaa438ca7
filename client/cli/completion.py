"""`orga completion`: commands and options by the Tab key, in bash, zsh and fish."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.output import document

VARIABLE = "_ORGA_COMPLETE"
"""Set by the shell when it asks what may follow."""


class Shell(StrEnum):
    """Shells that it is there for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish; yours without.")] = None,
) -> int:
    """Write the script that lets the Tab key complete commands and options; your shell reads it at its start.

    For bash: orga completion bash >> ~/.bashrc

    For zsh, behind compinit: orga completion zsh >> ~/.zshrc

    For fish: orga completion fish > ~/.config/fish/completions/orga.fish

    Example: source <(orga completion bash)
    """
    from typer._completion_shared import get_completion_script

    document(get_completion_script(prog_name="orga", complete_var=VARIABLE, shell=shell or _own_shell()))
    return 0


def complete_words(instruction: str) -> int:
    """Answer a shell's question for what may follow, on stdout; whatever goes wrong, nothing follows."""
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    from orga.client.cli.commands import with_commands
    from orga.client.cli.main import app

    completion_init()
    try:
        return shell_complete(with_commands(app), {}, "orga", VARIABLE, instruction)
    except Exception:  # a message would land amid what the person types
        return 1


def _own_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in {*Shell}:
        raise UsageError(f"your shell is not known ({name or 'SHELL is not set'}); name it: {', '.join(Shell)}")
    return Shell(name)
