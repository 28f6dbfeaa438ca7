"""What the commands of a chat do."""

from collections.abc import Awaitable, Callable, Set
from datetime import UTC, datetime

from orga.client.cli.chat.commands import Asked, help_lines
from orga.client.cli.chat.people import decide, held_by
from orga.client.cli.chat.source import Left
from orga.client.cli.chat.talk import Chat
from orga.client.cli.chat.turns import history_lines
from orga.client.cli.conversation import lines_of
from orga.client.cli.counting import counted
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.status_lines import call_budgets, status_lines
from orga.client.cli.terminal_text import apart
from orga.workflows.decisions.result import counted_calls, spent
from orga.workflows.types.sessions.result import SessionStatus, TurnResult
from orga.workflows.types.status import ShownMessage

HISTORY = 5
"""Turns that `/history` shows without a number."""
UNFOLDED_CHARS = 4_000
"""Of one result, in `/tools`."""


async def carry_out(chat: Chat, asked: Asked) -> None:
    """Do what one command says.

    Raises:
        Left: It says to leave.
        UsageError: It cannot be done now.
    """
    await _DO[asked.name](chat, asked.argument)


async def _help(chat: Chat, _: str) -> None:
    chat.shown.lines(*help_lines())


async def _steer(chat: Chat, text: str) -> None:
    if not chat.is_busy:
        raise UsageError("no turn is under way that could be steered: say it as it is")
    await chat.say(text, "steer")
    chat.shown.note("the turn under way reads it at its next step")


async def _interrupt(chat: Chat, text: str) -> None:
    if text:
        await chat.say(text, "interrupt")
    else:
        await chat.interrupt("/interrupt in the chat")


async def _tools(chat: Chat, _: str) -> None:
    messages = last_turn(await chat.session.conversation())
    if not any(message.calls or message.tool for message in messages):
        raise UsageError("the last turn has called no tool")
    chat.shown.lines(*apart(lines_of(_bounded(message)) for message in messages))


async def _status(chat: Chat, _: str) -> None:
    chat.shown.lines(*status_lines(chat.session.id, await chat.session.status()))


async def _budget(chat: Chat, _: str) -> None:
    status = await chat.session.status()
    if not isinstance(status, SessionStatus):
        return
    last = () if status.turn else (await chat.session.turns())[-1:]
    chat.shown.lines(*budget_lines(status, last[0] if last else None))


def budget_lines(status: SessionStatus, last: TurnResult | None) -> list[str]:
    """Return what the turn under way has spent of its limits, between turns the last one; and what all have spent."""
    budgets = status.budgets
    spends = (
        (
            "iterations",
            last.iterations if last else budgets.max_iterations - budgets.iterations,
            budgets.max_iterations,
        ),
        (
            "tokens",
            last.usage.total_tokens if last else budgets.max_total_tokens - budgets.tokens,
            budgets.max_total_tokens,
        ),
        ("s", last.duration_s if last else budgets.timeout_s - budgets.time_s, budgets.timeout_s),
    )
    which = f"turn {status.turn or (last.turn if last else 0)}"
    return [
        f"{which}: {', '.join(f'{used:.0f} of {limit:.0f} {unit}' for unit, used, limit in spends)}",
        *([f"calls: {calls}"] if (calls := call_budgets(budgets)) else []),
        f"in all {counted(status.turns, 'turn')}: {spent(status.usage)}, {counted_calls(status.tool_calls)}",
    ]


async def _history(chat: Chat, number: str) -> None:
    if number and not (number.isdecimal() and int(number)):
        raise UsageError(f"/history {number}: give the number of turns, as /history {HISTORY}")
    told = chat.turns.told[-int(number or HISTORY) :]
    chat.shown.lines(*(history_lines(told, datetime.now(UTC)) or ["nothing was said yet"]))


async def _approve(chat: Chat, argument: str) -> None:
    await _decide(chat, argument, approves=True)


async def _deny(chat: Chat, argument: str) -> None:
    await _decide(chat, argument, approves=False)


async def _decide(chat: Chat, argument: str, *, approves: bool) -> None:
    if not chat.is_typed:  # what is piped may have been written by anybody
        raise UsageError("a person decides that, at a terminal, or with: orga approve, orga deny")
    told = chat.shown.calls_told()  # whoever said this had seen no more
    calls = await held_by(chat.session)
    chat.shown.tell_calls(calls)
    chat.shown.lines(*await decide(chat.session, calls, argument, told=told, approves=approves))


async def _close(chat: Chat, _: str) -> None:
    await chat.session.close()
    if chat.is_busy:
        chat.shown.note("the session ends after the turn under way")
    if not (chat.is_typed and chat.is_busy):
        await chat.until_over()


async def _quit(chat: Chat, _: str) -> None:
    raise Left


_DO: dict[str, Callable[[Chat, str], Awaitable[None]]] = {
    "help": _help,
    "steer": _steer,
    "interrupt": _interrupt,
    "tools": _tools,
    "status": _status,
    "budget": _budget,
    "history": _history,
    "approve": _approve,
    "deny": _deny,
    "close": _close,
    "quit": _quit,
}


def carries_out() -> Set[str]:
    """Return the names of the commands that are carried out."""
    return _DO.keys()


def last_turn(messages: list[ShownMessage]) -> list[ShownMessage]:
    """Return what came after the last thing that was said."""
    said = [at for at, message in enumerate(messages) if message.role == "user"]
    return messages[said[-1] + 1 :] if said else []


def _bounded(message: ShownMessage) -> ShownMessage:
    if len(message.text) <= UNFOLDED_CHARS:
        return message
    return message.with_text(f"{message.text[:UNFOLDED_CHARS]}… (orga conversation shows all of it)")
