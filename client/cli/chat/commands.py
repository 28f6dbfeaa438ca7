"""What a line that somebody types into a chat is: something to say, or one of the chat's own commands."""

import re
from typing import NamedTuple

from orga.client.cli.exit_codes import UsageError
from orga.workflows.types.text import close_to


class ChatCommand(NamedTuple):
    """One command, as `/help` shows it."""

    takes: str
    """What stands behind its name; "" where nothing may."""
    does: str


COMMANDS: dict[str, ChatCommand] = {
    "help": ChatCommand("", "show these commands"),
    "steer": ChatCommand("TEXT", "guide the turn that is under way, at its next step"),
    "interrupt": ChatCommand("[TEXT]", "end the turn that is under way, and say TEXT in its place"),
    "tools": ChatCommand("", "unfold the tool calls of the last turn: arguments and what became of them"),
    "status": ChatCommand("", "where the session stands"),
    "budget": ChatCommand("", "what the turn has spent of its limits"),
    "history": ChatCommand("[N]", "show the last N turns"),
    "approve": ChatCommand("[ID|all] [REASON]", "let the calls run that wait for your yes"),
    "deny": ChatCommand("[ID|all] [REASON]", "turn the calls down that wait for your yes; the model reads the reason"),
    "close": ChatCommand("", "end the session for good"),
    "quit": ChatCommand("", "leave; the session goes on"),
}
"""By name."""

_NAMED = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class Said(NamedTuple):
    """A line that is no command."""

    text: str


class Asked(NamedTuple):
    """A command, with what stands behind its name."""

    name: str
    argument: str = ""


def understood(line: str) -> Said | Asked:
    """Return what a line is; `//` at its beginning stands for a `/` that is said, and a path is no command.

    Raises:
        UsageError: There is no such command, or it lacks its text.
    """
    text = line.strip()
    if text.startswith("//"):
        return Said(text[1:])
    match = _NAMED.fullmatch(text)
    if match is None:
        return Said(text)
    name, argument = match[1], (match[2] or "").strip()
    if name not in COMMANDS:
        raise UsageError(f"/{name} is no command: {close_to(name, list(COMMANDS))}/help shows them, //{name} says it")
    takes = COMMANDS[name].takes
    if argument and not takes:
        raise UsageError(f"/{name} takes nothing behind it; //{name} says the line to the agent")
    if takes == "TEXT" and not argument:
        raise UsageError(f"/{name}: add what is to be said: /{name} TEXT")
    return Asked(name, argument)


def help_lines() -> list[str]:
    """Return the commands, and the keys of the line in which one types."""
    heads = {name: f"/{name} {command.takes}".rstrip() for name, command in COMMANDS.items()}
    width = max(map(len, heads.values()))
    return [
        *(f"{heads[name]:{width}}  {command.does}" for name, command in COMMANDS.items()),
        "",
        r"Enter sends; Alt-Enter, or \ at the end of a line, begins another line. ↑ brings back what was said.",
        "What you send while a turn is under way is taken up after it.",
        "Ctrl-C ends the turn that is under way; at an empty prompt it leaves, as Ctrl-D does.",
    ]
