"""The entry point of `orga`: runs one command and ends the process, or completes words for a shell."""

import os
import re
import signal
import sys
from collections.abc import Coroutine, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.exceptions import TyperException

from orga.client.cli.commands import LAST_OPTION, RUN_ARGUMENT, build_program
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.shown.text import set_quiet, write_document, write_result, write_warning

if TYPE_CHECKING:
    from orga.client.cli.interrupts import Command

app = typer.Typer(
    name="orga",
    help="Durable agents: each run is a Temporal workflow that survives crashes and can be steered while it runs.",
    epilog='First run: orga run "What is in this folder?"   Settings: orga.toml, or ORGA_SECTION__KEY variables.',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version  # it imports the whole email package

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
    """Run the command line and exit at once: the SDK's threads can crash an interpreter that shuts down normally."""
    completion_request = os.environ.get(COMPLETION_VARIABLE)
    code = complete_words(completion_request) if completion_request else run_command(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command is over, so Ctrl-C needs no handling any more
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    os._exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. An error is shown on stderr, with `ORGA_DEBUG=1` as a traceback too."""
    set_quiet(quiet=False)
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # Ctrl-C may also come while `_run` reports an error
        return 130
    finally:
        if early_start := sys.modules.get("orga.client.workers.early_start"):
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C here would leave the worker running
            early_start.end_early()
            signal.signal(signal.SIGINT, handler)


def _run(arguments: Sequence[str]) -> int:
    try:
        outcome = build_program(app)(list(arguments), prog_name="orga", standalone_mode=False)
        if isinstance(outcome, Coroutine):
            from orga.client.cli.interrupts import run_interruptible  # it imports asyncio

            outcome = run_interruptible(cast("Command", outcome))
        return int(outcome or 0)
    except TyperException as error:
        return _report_usage_error(error)
    except typer.Abort:
        return 130
    except (BrokenPipeError, SystemExit):  # typer turns a BrokenPipeError into a SystemExit
        _redirect_to_devnull()
        return BROKEN_PIPE
    except Exception as error:
        from orga.client.cli.command_errors import report_error  # it imports the errors of all commands

        return report_error(error, lambda: _run(arguments))


def _report_usage_error(error: TyperException) -> int:
    if message := _usage_error_text(error):
        context = getattr(error, "ctx", None)  # only errors of usage have it
        command = context.command_path if context else "orga COMMAND"
        text = message.replace("Value error, ", "")  # typer puts it before the error of a choice
        write_warning(f"orga: {text} ({command} --help explains)")
    return ExitCode.USAGE


def _usage_error_text(error: TyperException) -> str:
    """Return the problem, and the options or commands that resemble an unknown one."""
    similar_options = getattr(error, "possibilities", None)  # only errors about options have it; nearest first
    text = error.format_message()
    if unknown := _UNKNOWN_COMMAND.search(text):
        context = getattr(error, "ctx", None)
        group = context if context and context.parent else None  # such as `orga schedule`
        if group and "Did you mean" not in text:
            return f"{text} There are: {', '.join(group.command.list_commands(group))}."
        if not group and (suggestion := COMMAND_SUGGESTIONS.get(unknown[1])):
            return f"No such command {unknown[1]!r}; did you mean {suggestion}?"
    if getattr(getattr(error, "param", None), "name", None) == RUN_ARGUMENT and text.startswith("Missing"):
        return f"{text} Name a run, or use {LAST_OPTION} for the newest."
    if similar_options:
        text = f"{error.message}. Did you mean {', '.join(similar_options)}?"
    return text.replace(". Did you mean", "; did you mean")


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
"""Names of commands in other programs, and our commands for them. Typer itself suggests only similar spellings."""


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except OSError:
        _redirect_to_devnull()


def _redirect_to_devnull() -> None:
    """Send both streams to /dev/null, since their reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


COMPLETION_VARIABLE = "_ORGA_COMPLETE"
"""The shell sets it when it asks for completions."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish. Default: your shell.")
    ] = None,
) -> None:
    """In bash: orga completion bash >> ~/.bashrc

    In zsh, after compinit: orga completion zsh >> ~/.zshrc

    In fish: orga completion fish > ~/.config/fish/completions/orga.fish

    Example: source <(orga completion bash)
    """
    from typer._completion_shared import get_completion_script

    write_document(
        get_completion_script(prog_name="orga", complete_var=COMPLETION_VARIABLE, shell=shell or _current_shell())
    )


def complete_words(instruction: str) -> int:
    """Write to stdout the completions that a shell asks for. After an error there are none."""
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    try:
        return shell_complete(build_program(app), {}, "orga", COMPLETION_VARIABLE, instruction)
    except Exception:  # a message would appear in the middle of the line that the person types
        return 1


def _current_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in {*Shell}:
        raise UsageError(f"SHELL: unknown shell ({name or 'SHELL is not set'}). Name one of {', '.join(Shell)}")
    return Shell(name)
