"""The table of all commands of `orga`, and the program that is built from it.

A command's module is imported only when the command is used. So its short help is in the table, and its docstring
has only the text that `--help` shows after the short help.
"""

from importlib import import_module
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from orga.isolated import interrupt_silently

C = TypeVar("C", bound=Any)

HELP_OPTIONS = ["--help", "-h"]


def with_plain_flags(command: C) -> C:
    """Let `-h` mean `--help`, and remove the type from the help of flags. For a group, do so for all its commands."""
    command.context_settings = {**command.context_settings, "help_option_names": HELP_OPTIONS}
    help_option = command.get_help_option(command.context_class(command, help_option_names=HELP_OPTIONS))
    for option in (*command.params, *([help_option] if help_option else [])):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        with_plain_flags(inner)
    return command


NEWEST_RUN = "\0newest"
"""The run's id if `--last` is given. Nobody can type it, as it contains NUL."""

RUN_ARGUMENT = "run"
"""The name of every parameter that takes a run's id."""

LAST_OPTION = "--last"


class LastRunCommand(TyperCommand):
    """Adds `--last` to commands that take a run. Other commands are unchanged."""

    def __init__(self, *arguments: Any, **extra: Any) -> None:
        super().__init__(*arguments, **extra)
        positions = [index for index, param in enumerate(self.params) if isinstance(param, TyperArgument)]
        self._takes_run = any(self.params[index].name == RUN_ARGUMENT for index in positions)
        if self._takes_run:
            help_text = _LAST_HELP_BY_COMMAND.get(str(self.name), _LAST_HELP)
            self.params.insert(max(positions) + 1, _last_option(help_text))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """If `--last` is given, insert `NEWEST_RUN` as the first argument, which is the ID."""
        if self._takes_run and LAST_OPTION in args:
            values, _, _ = self.make_parser(ctx).parse_args(args=[*args])
            if values.get(_LAST_PARAMETER):
                args = [NEWEST_RUN, *args]
        return super().parse_args(ctx, args)


_LAST_PARAMETER = "last"

_LAST_HELP = "Use the newest run of this folder instead of an ID."

_LAST_HELP_BY_COMMAND = {"chat": "Continue the newest session of this folder that has not ended, instead of an ID."}
"""Commands for which `--last` means something other than the newest run."""


def _last_option(help_text: str) -> Any:
    """Return `--last` as Typer builds it. Typer builds options only from the parameters of a command's function."""

    def declare_option(last: Annotated[bool, typer.Option(LAST_OPTION, help=help_text)] = False) -> None: ...

    app = typer.Typer(add_completion=False)
    app.command()(declare_option)
    [option] = typer.main.get_command(app).params
    option.expose_value = False
    return option


class DefaultCommandGroup(TyperGroup):
    """A group that runs the command `default` if the first argument names no command."""

    default = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in self.commands or args[0] in HELP_OPTIONS)
        shows_help = not args and self.no_args_is_help
        return super().parse_args(ctx, args if is_named or shows_help else [self.default, *args])


class CommandEntry(NamedTuple):
    """A row of the table: one command or group."""

    name: str
    target: str
    """`module:attribute`, relative to `orga.client.cli`: a command's function, or a group's Typer application."""
    help: str
    """The short help. `orga --help` shows it without loading the command."""
    begins_worker: bool = False
    """True if a worker starts before the command is loaded. Other commands may start one later."""


COMMANDS: dict[str, tuple[CommandEntry, ...]] = {
    "Runs": (
        CommandEntry(
            "run",
            "start.run:run",
            "Start an agent on a task and follow it: answer on stdout, progress on stderr.",
            begins_worker=True,
        ),
        CommandEntry(
            "goal",
            "start.run:goal",
            "Pursue a goal: plan, carry out, evaluate and decide until there is a final answer.",
            begins_worker=True,
        ),
        CommandEntry(
            "chat",
            "chat.command:chat",
            "Chat with an agent. Each message is a turn with its own limits, and the agent remembers earlier turns.",
        ),
        CommandEntry(
            "attach",
            "start.run:attach",
            "Follow a run from its beginning to its end, as `orga run` does. If no worker is running, the command"
            " starts one.",
        ),
        CommandEntry(
            "list",
            "inspect.runs:list_runs",
            "List runs, newest first, with their task, agent, state, age, cost and folder.",
        ),
        CommandEntry(
            "status",
            "inspect.status:status",
            "Show the state of a run: phase, budgets, open questions, open circuits, delegates and dead letters.",
        ),
        CommandEntry(
            "conversation",
            "inspect.status:conversation",
            "Show what the model would see now: instructions, task, calls and results. No worker is needed.",
        ),
        CommandEntry(
            "open", "inspect.status:open_run", "Open a run in the Temporal UI in your browser, and print the address."
        ),
        CommandEntry(
            "journal", "inspect.journal:journal", "Show the journal of a live or ended run. No worker is needed."
        ),
        CommandEntry(
            "steps",
            "inspect.steps:steps",
            "Show the phases of a goal: steps, scores, decisions, times, received guidance and errors.",
        ),
        CommandEntry(
            "verify",
            "inspect.verify:verify",
            "Replay every history of a run, rebuild its contexts and journal, and recount its result. No worker "
            "is needed.",
        ),
        CommandEntry(
            "schedule", "start.schedule:app", "Manage schedules: Temporal starts goals and runs at given times."
        ),
    ),
    "Steering a run": (
        CommandEntry(
            "steer",
            "steer.intervene:steer",
            "Guide the next reasoning step of a run. Guidance is kept in order and never lost.",
        ),
        CommandEntry(
            "add-context", "steer.intervene:add_context", "Add context that the agent keeps for the rest of the run."
        ),
        CommandEntry(
            "pause", "steer.intervene:pause", "Pause a run before its next phase. Its clock and its budgets pause too."
        ),
        CommandEntry("resume", "steer.intervene:resume", "Resume a paused run."),
        CommandEntry(
            "abort",
            "steer.intervene:abort",
            "Cancel what a run is doing and end it. Its result keeps everything gathered so far.",
        ),
        CommandEntry(
            "rewind",
            "steer.rewind:rewind",
            "Continue a live or ended run from the end of an earlier iteration. Its clock is set back to that time.",
        ),
        CommandEntry(
            "fork",
            "steer.rewind:fork",
            "Start a new run with the past of another run up to an iteration, print the new run's id, and exit. The "
            "other run is unchanged.",
        ),
    ),
    "Deciding for a run": (
        CommandEntry(
            "inbox",
            "inspect.inbox:inbox",
            "Show everything that waits for a person in all runs, oldest run first, with the commands that decide it.",
        ),
        CommandEntry(
            "answer", "steer.decide:answer", "Answer the question that a run or a goal is waiting on. It then goes on."
        ),
        CommandEntry(
            "override",
            "steer.intervene:override",
            "Replace the next step of a goal by a tool call or a delegated task. Steps that already run are not "
            "affected.",
        ),
        CommandEntry(
            "approve", "steer.decide:approve", "Approve held calls. APPROVAL may be omitted if the run holds only one."
        ),
        CommandEntry("deny", "steer.decide:deny", "Deny held calls. The model reads the reason and goes on."),
        CommandEntry(
            "resolve",
            "steer.decide:resolve",
            "Decide a question that a run waits for. ESCALATION may be omitted if only one waits.",
        ),
        CommandEntry(
            "complete",
            "steer.decide:complete",
            "Deliver the result, or an error, that a call waits for. CALL may be omitted if only one call waits.",
        ),
        CommandEntry(
            "extend", "steer.decide:extend", "Raise limits of a live run. A run that waits for more budget goes on."
        ),
        CommandEntry(
            "requeue",
            "steer.requeue:requeue",
            "Send a dead letter again, through the gate and with its old idempotency key. The model reads the result.",
        ),
        CommandEntry("notify", "workbench.notify:app", "Test the webhook that notifies people of open questions."),
    ),
    "Settings": (
        CommandEntry(
            "init", "workbench.init:init", "Write a first, commented orga.toml. An existing file is never overwritten."
        ),
        CommandEntry("config", "workbench.config:app", "Show the effective configuration: each value and its source."),
        CommandEntry(
            "agents",
            "workbench.config:agents",
            "Show the agents of this configuration: model, tools, delegates. Nothing is started.",
        ),
        CommandEntry(
            "models",
            "workbench.models:app",
            "List the models of this configuration: what each can do and costs, and what it still needs. Try one.",
        ),
        CommandEntry(
            "completion",
            "main:completion",
            "Write the script that lets the Tab key complete commands and options. Your shell reads it when it starts.",
        ),
    ),
    "Server and workers": (
        CommandEntry(
            "acp",
            "workbench.frontends:acp",
            "Serve an agent to an editor over the Agent Client Protocol: Zed, JetBrains, Neovim, Emacs.",
        ),
        CommandEntry(
            "mcp-server",
            "workbench.frontends:mcp_server",
            "Serve runs as MCP tools to an assistant: Claude Code and Desktop, Codex, Cursor.",
        ),
        CommandEntry(
            "console",
            "workbench.console:console",
            "Serve the web console: see, decide, steer and start runs in a browser.",
        ),
        CommandEntry(
            "dev",
            "workbench.server:dev",
            "Run server and worker until Ctrl-C, and show the logs of both. A worker that dies is restarted.",
        ),
        CommandEntry(
            "server",
            "workbench.server:server",
            "Run the embedded Temporal server until Ctrl-C, and show the addresses of the server and its UI.",
        ),
        CommandEntry(
            "worker",
            "workbench.server:worker",
            "Run a worker, which carries out runs, until Ctrl-C or SIGTERM. Running calls then have 10 seconds to end. "
            "SIGUSR1 ends it without a limit for them.",
        ),
        CommandEntry(
            "logs",
            "workbench.server:logs",
            "Show the log of a worker that a command started, or of the embedded server.",
        ),
        CommandEntry(
            "setup",
            "workbench.doctor:setup",
            "Register the search attributes on the configured server. The embedded server already has them.",
        ),
        CommandEntry(
            "doctor",
            "workbench.doctor:doctor",
            "Check configuration, folder, server, search attributes, workers, agents, tools and models.",
        ),
        CommandEntry(
            "trust",
            "workbench.config:trust",
            "Trust a configuration as it is now. It may then run code, use your keys, and widen what agents may do.",
        ),
        CommandEntry(
            "demo",
            "workbench.demo:demo",
            "Ask an agent a question about this project and watch it work: live view, answer, journal.",
        ),
    ),
    "Knowledge": (
        CommandEntry(
            "knowledge",
            "knowledge.app:app",
            "Manage the knowledge that agents recall from run to run: add, search, import, export, forget.",
        ),
    ),
    "Tools": (
        CommandEntry(
            "tools",
            "tools.app:app",
            "Manage the tools of agents: list them, declare new ones in TOML, check them, try one.",
        ),
    ),
    "Policies": (
        CommandEntry(
            "policy",
            "policy.app:app",
            "Check and test the policies that decide what agents may do, and see why a call was denied.",
        ),
        CommandEntry(
            "audit",
            "inspect.audit:app",
            "Judge the proposals of past runs by other policies, and create keys that sign exported journals.",
        ),
    ),
}
"""The commands by the panel in which `orga --help` shows them."""


OPTIONS_WITHOUT_WORKER = frozenset({"--no-worker", "--detach", "-d", "--help", "-h"})


class _LazyCommand(TyperCommand):
    """A command whose module is imported when it is called."""

    def __init__(self, command: CommandEntry, panel: str) -> None:
        super().__init__(command.name, help=command.help, rich_help_panel=panel)
        self._command = command

    def make_context(self, info_name: Any, args: list[str], *others: Any, **extra: Any) -> Any:
        """Import the command and let it parse the arguments. A worker that it may need starts before the import."""
        if self._command.begins_worker and not OPTIONS_WITHOUT_WORKER.intersection(args):
            import_module("orga.client.workers.early_start").start_early()
        command = load_command(self._command)
        return command.make_context(info_name, args, *others, **extra)


def load_command(entry: CommandEntry) -> Any:
    module, _, attribute = entry.target.partition(":")
    with interrupt_silently():
        target = getattr(import_module(f"orga.client.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        group = typer.main.get_group(target)
        group.help = entry.help
        return with_plain_flags(group)
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(entry.name, cls=LastRunCommand)(target)
    command = typer.main.get_command(app)
    command.help = f"{entry.help}\n\n{command.help or ''}".strip()
    return with_plain_flags(command)


def build_program(app: typer.Typer) -> TyperGroup:
    """Return the program with all commands of the table. `app` needs a callback, or Typer does not make it a group."""
    program = with_plain_flags(typer.main.get_group(app))
    for panel, commands in COMMANDS.items():
        for command in commands:
            program.add_command(_LazyCommand(command, panel))
    return program
