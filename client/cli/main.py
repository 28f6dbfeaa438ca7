"""The command line `orga`: its commands in groups, and one way for every command to end."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from temporalio.service import RPCError
from typer.exceptions import TyperException

from orga.client.cli import (
    answer,
    approve,
    attach,
    audit,
    conversation,
    demo,
    dev,
    doctor,
    extend,
    fork,
    goal,
    inbox,
    intervene,
    journal,
    list_runs,
    notify,
    override,
    policy,
    requeue,
    resolve,
    rewind,
    run,
    schedule,
    server,
    setup,
    status,
    steps,
    tools,
    verify,
    worker,
)
from orga.client.cli.exit_codes import ExitCode, UsageError, of_error
from orga.client.cli.knowledge import app as knowledge
from orga.client.cli.output import note, result
from orga.client.cli.terminal_text import behind
from orga.client.cli.trust import is_trusted_now, trust
from orga.client.config.trust.check import Untrusted
from orga.client.errors import OrgaError, RunFailed
from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.lacking import reason_of
from orga.workflows.types.record import InvalidInput

app = typer.Typer(
    name="orga",
    help="Durable agents: each run is a Temporal workflow that survives crashes and can be steered while it goes on.",
    epilog='A first run: orga run "What is in this folder?"   Settings: orga.toml, or ORGA_SECTION__KEY variables.',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_GROUPS: dict[str, dict[str, Callable[..., int]]] = {
    "Runs": {
        "run": run.run,
        "goal": goal.goal,
        "attach": attach.attach,
        "list": list_runs.list_runs,
        "status": status.status,
        "conversation": conversation.conversation,
        "journal": journal.journal,
        "steps": steps.steps,
        "verify": verify.verify,
    },
    "Steering a run": {
        "steer": intervene.steer,
        "add-context": intervene.add_context,
        "pause": intervene.pause,
        "resume": intervene.resume,
        "abort": intervene.abort,
        "rewind": rewind.rewind,
        "fork": fork.fork,
    },
    "Deciding for a run": {
        "inbox": inbox.inbox,
        "answer": answer.answer,
        "override": override.override,
        "approve": approve.approve,
        "deny": approve.deny,
        "resolve": resolve.resolve,
        "extend": extend.extend,
        "requeue": requeue.requeue,
    },
    "Server and workers": {
        "dev": dev.dev,
        "server": server.server,
        "worker": worker.worker,
        "setup": setup.setup,
        "doctor": doctor.doctor,
        "trust": trust,
        "demo": demo.demo,
    },
}


def _print_version(asked: bool) -> None:
    if asked:
        result(f"orga {version('orga')}")
        raise typer.Exit


@app.callback()
def _of_all_commands(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


for _group, _commands in _GROUPS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_group)(_command)

app.add_typer(schedule.app, name="schedule", rich_help_panel="Runs")
app.add_typer(knowledge.app, name="knowledge", rich_help_panel="Knowledge")
app.add_typer(tools.app, name="tools", rich_help_panel="Tools")
app.add_typer(policy.app, name="policy", rich_help_panel="Policies")
app.add_typer(audit.app, name="audit", rich_help_panel="Policies")
app.add_typer(notify.app, name="notify", rich_help_panel="Deciding for a run")

EXPECTED = (UsageError, InvalidInput, OrgaError, ServerUnavailable, RPCError, OSError)
BROKEN_PIPE = 141
"""128 + SIGPIPE."""

REFUSED = re.compile(r"^(InvalidInput: )+")


def main() -> None:
    """Run the command line and leave at once: the SDK's threads can crash an interpreter that finishes normally."""
    code = run_command(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    os._exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; an error becomes one line on stderr, `ORGA_DEBUG=1` shows all."""
    try:
        return _ran(arguments)
    except TyperException as error:
        return _usage(error)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):  # typer makes the one into the other
        _to_nowhere()
        return BROKEN_PIPE
    except EXPECTED as error:
        return _failed(error, _text(error))
    except Exception as error:  # a defect: never a traceback, unless it is asked for
        return _failed(error, f"defect: {type(error).__name__}: {error} (ORGA_DEBUG=1 shows where)")


def _ran(arguments: Sequence[str]) -> int:
    """Run the command; what a person at the terminal trusts meanwhile is asked once, and then it runs anew."""
    try:
        return int(app(list(arguments), prog_name="orga", standalone_mode=False) or 0)
    except Untrusted as error:
        if not is_trusted_now(error):
            raise
    return _ran(arguments)


def _usage(error: TyperException) -> int:
    if message := error.format_message():
        note(f"orga: {message} (orga COMMAND --help explains)")
    return ExitCode.USAGE


def _failed(error: Exception, text: str) -> int:
    if os.environ.get("ORGA_DEBUG"):
        traceback.print_exc()
    note(*behind("orga: ", text))
    return of_error(error)


def _text(error: Exception) -> str:
    if isinstance(error, RPCError):
        return f"the Temporal server answered {error.status.name.lower()}: {reason_of(error)}; see: orga doctor"
    if isinstance(error, RunFailed):
        return REFUSED.sub("", str(error))
    return str(error)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except OSError:
        _to_nowhere()


def _to_nowhere() -> None:
    """Point both streams at nothing: who read them has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
