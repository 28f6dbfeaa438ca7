"""Deciding in a chat what a turn holds back until somebody says yes."""

from collections.abc import Set
from datetime import UTC, datetime
from shlex import quote

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.held_calls import Call, held_calls, is_unseen, table
from orga.client.cli.login_name import login_name
from orga.client.errors import Refused
from orga.client.runs.agents import AgentHandle

ALL = "all"


async def held_by(run: AgentHandle) -> list[Call]:
    """Return the calls that the run or its delegates hold now."""
    return [call for wait in (await run.live_status()).waiting for call in held_calls(wait)]


async def decide(run: AgentHandle, calls: list[Call], argument: str, *, told: Set[str], approves: bool) -> list[str]:
    """Approve or deny calls that are held, and return a line for each, also where this person may not.

    Args:
        run: The session.
        calls: What it holds.
        argument: A reason; where several calls are held, first which: the approval's id, or `all`.
        told: The ids of the calls that the person had been shown on saying so; unnamed, no other is meant.
        approves: Whether the answer is yes.

    Raises:
        UsageError: None is held, none that was shown, not the one that is named, or several and none is named; a yes
            is to arguments that were not shown.
    """
    if not calls:
        raise UsageError("nothing waits for your yes")
    held = {str(call["id"]): call for call in calls}
    word = "approve" if approves else "deny"
    named, _, rest = argument.partition(" ")
    if named in told and named not in held:
        raise UsageError(f"{named} does not wait any more; another call does: /{word} decides that")
    meant = [each for each in held if each == named or (named not in held and each in told)]
    if not meant:
        raise UsageError(f"nothing is decided: what waits was not shown yet when you said so; /{word} decides it now")
    is_named = named == ALL or named in held
    if len(meant) > 1 and not is_named:
        shown = "\n".join(table([held[each] for each in meant], datetime.now(UTC)))
        raise UsageError(f"several calls wait: /{word} ID, or /{word} {ALL}\n{shown}")
    if approves and (unseen := [each for each in meant if is_unseen(held[each])]):
        command = f"orga approve {quote(run.id)} {' '.join(map(quote, unseen))} --show"
        raise UsageError(f"arguments too long to stand here are approved by no chat; see them with: {command}")
    tell, who, lines = (run.approve if approves else run.deny), login_name(), list[str]()
    for approval_id in meant:
        what = f"{held[approval_id].get('tool')} {approval_id}"
        try:
            await tell(approval_id, who, rest.strip() if is_named else argument)
            lines.append(f"{'approved' if approves else 'denied'}: {what}")
        except Refused as error:
            lines.append(f"not decided: {what}: {error}")
    return lines
