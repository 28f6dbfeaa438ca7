"""The commands of `orga`, none of which is loaded before it is asked for."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from orga.client.cli.of_run import OfRun
from orga.client.cli.plain_flags import with_plain_flags
from orga.isolated import loading


class Command(NamedTuple):
    """One command."""

    name: str
    place: str
    """Module and function, or the group of commands that stands behind the name."""
    help: str
    """The first paragraph of its own help: a list of commands is shown without them."""
    begins_worker: bool = False
    """Whether a worker is begun ahead of it, for the case that none polls."""


COMMANDS: dict[str, tuple[Command, ...]] = {
    "Runs": (
        Command(
            "run",
            "orga.client.cli.run:run",
            "Start an agent on a task and follow it: answer on stdout, progress on stderr.",
            True,
        ),
        Command(
            "goal",
            "orga.client.cli.goal:goal",
            "Pursue a goal: plan, carry out, evaluate, decide, until a final answer can be given.",
            True,
        ),
        Command(
            "chat",
            "orga.client.cli.chat.command:chat",
            "Talk with an agent: each message is a turn with limits of its own, and it remembers the turns before.",
        ),
        Command(
            "attach",
            "orga.client.cli.attach:attach",
            "Follow a run from its beginning to its end, as `orga run` does; works itself when no worker polls.",
        ),
        Command(
            "list",
            "orga.client.cli.list_runs:list_runs",
            "List runs, newest first: what they are for, where they stand, what they cost, in which folder.",
        ),
        Command(
            "status",
            "orga.client.cli.status:status",
            "Show where a run stands: phase, budgets, what waits for a person, open circuits, delegates, dead letters.",
        ),
        Command(
            "conversation",
            "orga.client.cli.conversation:conversation",
            "Show what the model would see now: instructions, task, calls, results; no worker is needed.",
        ),
        Command(
            "open",
            "orga.client.cli.open_run:open_run",
            "Open a run in the Temporal UI, in your browser, and write the address.",
        ),
        Command(
            "journal",
            "orga.client.cli.journal:journal",
            "Show the journal of a run, live or ended; no worker is needed.",
        ),
        Command(
            "steps",
            "orga.client.cli.steps:steps",
            "Show what each phase of a goal brought: steps, scores, decisions, time, what it heard and what went "
            "wrong.",
        ),
        Command(
            "verify",
            "orga.client.cli.verify:verify",
            "Replay every history of a run, rebuild contexts and journal from it, count its result anew; no worker is "
            "needed.",
        ),
        Command(
            "schedule",
            "orga.client.cli.schedule.app:app",
            "Goals and runs that come again and again: Temporal starts them by the clock.",
        ),
    ),
    "Steering a run": (
        Command(
            "steer",
            "orga.client.cli.intervene:steer",
            "Guide the next reasoning step of a run; guidance is kept in order and never lost.",
        ),
        Command(
            "add-context",
            "orga.client.cli.intervene:add_context",
            "Add to what the agent knows for the rest of the run.",
        ),
        Command(
            "pause",
            "orga.client.cli.intervene:pause",
            "Stop a run before its next phase; its clock and budgets stand still.",
        ),
        Command("resume", "orga.client.cli.intervene:resume", "Let a paused run go on."),
        Command(
            "abort",
            "orga.client.cli.intervene:abort",
            "Cancel what a run does right now and end it; its result keeps all that was gathered.",
        ),
        Command(
            "rewind",
            "orga.client.cli.rewind:rewind",
            "Let a run, live or ended, go on from the end of an earlier iteration, with the clock it had then.",
        ),
        Command(
            "fork",
            "orga.client.cli.fork:fork",
            "Start a run that shares another's past up to an iteration, print its id, and leave; the other is left "
            "alone.",
        ),
    ),
    "Deciding for a run": (
        Command(
            "inbox",
            "orga.client.cli.inbox:inbox",
            "Show what waits for a person in all runs, oldest run first, each with the command that decides it.",
        ),
        Command(
            "answer",
            "orga.client.cli.answer:answer",
            "Answer the question that a run or a goal waits with; it goes on by that.",
        ),
        Command(
            "override",
            "orga.client.cli.override:override",
            "Have this done in place of the step of a goal that is due next; what runs already goes on.",
        ),
        Command(
            "approve",
            "orga.client.cli.approve:approve",
            "Let calls run that wait for a yes; APPROVAL may be left out where the run holds only one.",
        ),
        Command(
            "deny",
            "orga.client.cli.approve:deny",
            "Turn calls down that wait for a yes; the model reads the reason and goes on.",
        ),
        Command(
            "resolve",
            "orga.client.cli.resolve:resolve",
            "Decide what a run waits for; its ESCALATION may be left out where only one waits.",
        ),
        Command(
            "extend",
            "orga.client.cli.extend:extend",
            "Raise limits of a live run; one that waits for more budget goes on.",
        ),
        Command(
            "requeue",
            "orga.client.cli.requeue:requeue",
            "Send a dead letter again, through the gate and under its old idempotency key; the model reads what came "
            "of it.",
        ),
        Command("notify", "orga.client.cli.notify:app", "A webhook tells people what waits for them: try it."),
    ),
    "Settings": (
        Command(
            "init",
            "orga.client.cli.init:init",
            "Write a first, commented orga.toml; an existing one is never overwritten.",
        ),
        Command(
            "config",
            "orga.client.cli.config:app",
            "The configuration that holds here: each value, and where it comes from.",
        ),
        Command(
            "agents",
            "orga.client.cli.agents:agents",
            "Show the agents of this configuration: model, tools, whom they may delegate to; nothing is started.",
        ),
        Command(
            "models",
            "orga.client.cli.models:models",
            "Show the models that this configuration names, then one of each provider, with what is lacking to ask it.",
        ),
        Command(
            "completion",
            "orga.client.cli.completion:completion",
            "Write the script that lets the Tab key complete commands and options; your shell reads it at its start.",
        ),
    ),
    "Server and workers": (
        Command(
            "dev",
            "orga.client.cli.dev:dev",
            "Run server and worker until Ctrl-C, their logs side by side; a worker that dies is started again.",
        ),
        Command(
            "server",
            "orga.client.cli.server:server",
            "Keep the embedded Temporal server up until Ctrl-C, and show its address and its UI.",
        ),
        Command(
            "worker",
            "orga.client.cli.worker:worker",
            "Run a worker: it carries out runs, until Ctrl-C or SIGTERM, then it finishes what it does.",
        ),
        Command(
            "logs",
            "orga.client.cli.logs:logs",
            "Show the log of a worker that a command brought along, or of the embedded server.",
        ),
        Command(
            "setup",
            "orga.client.cli.setup:setup",
            "Register the search attributes on the configured server; the embedded one has them already.",
        ),
        Command(
            "doctor",
            "orga.client.cli.doctor:doctor",
            "Check configuration, folder, server, search attributes, workers, agents, tools and models.",
        ),
        Command(
            "trust",
            "orga.client.cli.trust:trust",
            "Trust a configuration as it stands: it may then run code, use your keys, and widen what agents may do.",
        ),
        Command(
            "demo",
            "orga.client.cli.demo:demo",
            "Ask an agent a question about this project and watch it find out: live view, answer, journal.",
        ),
    ),
    "Knowledge": (
        Command(
            "knowledge",
            "orga.client.cli.knowledge.app:app",
            "Knowledge is what agents recall from run to run: add, find, import, export and forget it.",
        ),
    ),
    "Tools": (
        Command(
            "tools",
            "orga.client.cli.tools.app:app",
            "Tools are what agents act with: list them, declare new ones in TOML, check them, try one.",
        ),
    ),
    "Policies": (
        Command(
            "policy",
            "orga.client.cli.policy.app:app",
            "Policies decide what agents may do: check them, test them, see why a call was denied.",
        ),
        Command(
            "audit",
            "orga.client.cli.audit.app:app",
            "What other policies would have said to all that past runs have proposed; keys for exported journals.",
        ),
    ),
}
"""By the panel of the help that shows them."""


WITHOUT_WORKER = frozenset({"--no-worker", "--detach", "-d", "--help", "-h"})


def begin_worker(arguments: Sequence[str]) -> None:
    """Begin the worker that a command line will need, before all else: it loads what it is made of meanwhile."""
    names = [each.name for panel in COMMANDS.values() for each in panel if each.begins_worker]
    if arguments and arguments[0] in names and not WITHOUT_WORKER.intersection(arguments):
        import_module("orga.client.workers.ahead").begin_ahead()


class _Later(TyperCommand):
    """A command that is loaded when it is called."""

    def __init__(self, command: Command, panel: str) -> None:
        super().__init__(command.name, help=command.help, rich_help_panel=panel)
        self._command = command

    def make_context(self, info_name: Any, args: list[str], *others: Any, **extra: Any) -> Any:
        """Read the arguments of the command itself."""
        command = loaded(self._command.name, self._command.place)
        return command.make_context(info_name, args, *others, **extra)


def loaded(name: str, place: str) -> Any:
    """Return the command as its module defines it."""
    module, _, found = place.partition(":")
    with loading():
        target = getattr(import_module(module), found)
    if isinstance(target, typer.Typer):
        return with_plain_flags(typer.main.get_group(target))
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name, cls=OfRun)(target)
    return with_plain_flags(typer.main.get_command(alone))


def with_commands(app: typer.Typer) -> TyperGroup:
    """Return the program of an application that has a callback, with all commands."""
    program = with_plain_flags(typer.main.get_group(app))
    for panel, commands in COMMANDS.items():
        for command in commands:
            program.add_command(_Later(command, panel))
    return program
