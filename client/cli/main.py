"""The entry point of `orga`: how every command starts and ends, and shell completion."""

import os
import re
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from orga.client.cli.commands import build_program
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.shown.text import set_quiet, write_document, write_result, write_warning

app = typer.Typer(
    name="orga",
    help="Durable agents: each run is a Temporal workflow that survives crashes and can be steered while it goes on.",
    epilog='A first run: orga run "What is in this folder?"   Settings: orga.toml, or ORGA_SECTION__KEY variables.',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # all that reads mail with it

        write_result(f"orga {version('orga')}")
        raise typer.Exit


@app.callback()
def _global_options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


BROKEN_PIPE = 141
"""128 + SIGPIPE."""


def main() -> None:
    """Run the command line and leave at once: the SDK's threads can crash an interpreter that finishes normally."""
    asked = os.environ.get("_ORGA_COMPLETE")
    code = complete_words(asked) if asked else run_command(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be told how it ended
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    os._exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; an error becomes one line on stderr, `ORGA_DEBUG=1` shows all."""
    set_quiet(quiet=False)
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # also while an error is put into words, which loads modules
        return 130
    finally:
        if ahead := sys.modules.get("orga.client.workers.early_start"):
            usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is over, and what it began is to end
            ahead.dismiss()
            signal.signal(signal.SIGINT, usual)


def _run(arguments: Sequence[str]) -> int:
    try:
        return int(build_program(app)(list(arguments), prog_name="orga", standalone_mode=False) or 0)
    except TyperException as error:
        return _report_usage_error(error)
    except typer.Abort:
        return 130
    except (BrokenPipeError, SystemExit):  # typer makes the one into the other
        _redirect_to_devnull()
        return BROKEN_PIPE
    except Exception as error:
        from orga.client.cli.command_errors import report_error  # it loads the errors of all commands

        return report_error(error, lambda: _run(arguments))


def _report_usage_error(error: TyperException) -> int:
    if message := _usage_error_text(error):
        write_warning(f"orga: {message.replace('Value error, ', '')} (orga COMMAND --help explains)")
    return ExitCode.USAGE


def _usage_error_text(error: TyperException) -> str:
    """Return what is wrong; the options nearest to one that there is not are offered as typer offers commands."""
    near = getattr(error, "possibilities", None)  # of an option alone, the nearest first
    if (command := _UNKNOWN_COMMAND.search(error.format_message())) and (meant := COMMAND_SUGGESTIONS.get(command[1])):
        return f"No such command {command[1]!r}; did you mean {meant}?"
    told = f"{error.message}. Did you mean {', '.join(near)}?" if near else error.format_message()
    return told.replace(". Did you mean", "; did you mean")


_UNKNOWN_COMMAND = re.compile(r"^No such command '([^']*)'")

COMMAND_SUGGESTIONS = {
    "cancel": "'orga abort ID'",
    "delete": "'orga abort ID'",
    "describe": "'orga status ID'",
    "exec": "'orga run TASK'",
    "follow": "'orga attach ID'",
    "get": "'orga status ID'",
    "history": "'orga journal ID'",
    "info": "'orga status ID'",
    "kill": "'orga abort ID'",
    "log": "'orga journal ID', or 'orga logs' for a worker's log",
    "ls": "'orga list'",
    "new": "'orga run TASK', or 'orga init' for an orga.toml",
    "ps": "'orga list'",
    "result": "'orga status ID'",
    "retry": "'orga requeue ID LETTER'",
    "rm": "'orga abort ID'",
    "runs": "'orga list'",
    "serve": "'orga server'",
    "show": "'orga status ID', or 'orga journal ID'",
    "start": "'orga run TASK'",
    "stop": "'orga abort ID', or 'orga server --stop'",
    "tail": "'orga attach ID'",
    "ui": "'orga open ID'",
    "version": "'orga --version'",
    "view": "'orga status ID'",
    "wait": "'orga attach ID'",
    "watch": "'orga attach ID'",
}
"""What other programs call a command of ours: no likeness of letters leads from one to the other."""


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except OSError:
        _redirect_to_devnull()


def _redirect_to_devnull() -> None:
    """Point both streams at nothing: who read them has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


COMPLETION_VARIABLE = "_ORGA_COMPLETE"
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

    write_document(
        get_completion_script(prog_name="orga", complete_var=COMPLETION_VARIABLE, shell=shell or _current_shell())
    )
    return 0


def complete_words(instruction: str) -> int:
    """Answer a shell's question for what may follow, on stdout; whatever goes wrong, nothing follows."""
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    try:
        return shell_complete(build_program(app), {}, "orga", COMPLETION_VARIABLE, instruction)
    except Exception:  # a message would land amid what the person types
        return 1


def _current_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in {*Shell}:
        raise UsageError(f"your shell is not known ({name or 'SHELL is not set'}); name it: {', '.join(Shell)}")
    return Shell(name)
