"""`orga chat`: begin a conversation, or go on with one."""

from typing import Annotated

import typer

from orga.client.cli import output
from orga.client.cli.chat.opening import Wish, begin, go_on
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import (
    AgentName,
    ConfigFile,
    Instructions,
    Model,
    NoWorker,
    Quiet,
    Settings,
    Tools,
    Trusted,
)
from orga.client.cli.task_input import Given, session_input
from orga.client.cli.task_text import task_text
from orga.client.runs.sessions import session_id_of
from orga.workflows.types.text import clean_text


def chat(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A session to go on with, or the beginning of its id; a new one without.",
            show_default=False,
        ),
    ] = None,
    *,
    say: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Say this, show the answer, and leave; - reads it from standard input."),
    ] = None,
    agent: AgentName = None,
    model: Model = None,
    instructions: Instructions = None,
    tools: Tools = None,
    set_: Settings = None,
    id_: Annotated[str | None, typer.Option("--id", help="The new session's id; session-<uuid7> without.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whom the new session is for.")] = None,
    trusted: Trusted = None,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End the session when nothing was said for so long.")
    ] = None,
    history: Annotated[int, typer.Option(min=0, help="Turns of a session's past that are shown first.")] = 3,
    no_worker: NoWorker = False,
    quiet: Quiet = False,
    json: Annotated[
        bool, typer.Option("--json", "-j", help="Each turn as one line of JSON on stdout; all else on stderr.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """Talk with an agent: each message is a turn with limits of its own, and it remembers the turns before.

    Leave when you like: the session waits for you, for months if need be; orga chat ID goes on with it.

    At a terminal, /help shows what else can be done. Ctrl-C ends the turn under way, Ctrl-D leaves.

    From a pipe each line is a message; the next one is said when it is answered.

    Agent, model, tools and settings are settled when a session begins.

    Exit codes: 0 left or all answered, 2 bad input, 3 to 6 as of `orga run`, 7 no server, 130 left amid a turn.

    Example: orga chat --agent reviewer

    Example: orga chat --last --say "And what did we decide about the dates?"

    Example: git diff | orga chat ID --say - --json
    """
    given = Given("", agent, model, instructions, tools or (), set_ or (), None, None, tenant, trusted or ())
    output.hush(quiet=quiet)
    text = None if say is None else clean_text(task_text(say))
    if text is not None and not text.strip():
        raise UsageError("--say: there is nothing to say")
    wish = Wish(text, config, history, no_worker, json)
    if run is None:
        return completed(begin(session_input(given, idle), session_id_of(id_), wish))
    if given != Given("") or id_ is not None or idle is not None:
        raise UsageError(
            "agent, model, tools and settings are settled when a session begins: leave these options out, or leave "
            "the ID out to begin a new session"
        )
    return completed(go_on(run, wish))
