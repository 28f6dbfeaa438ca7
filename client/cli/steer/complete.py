"""`orga complete`: give a call of a deferred tool its result."""

from json import loads
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId, login_name, text_or_file
from orga.client.cli.shown.text import on_one_line, write_json, write_note
from orga.client.runs.agents import AgentHandle
from orga.workflows.types.json_text import unique_keys_object


def complete(
    run: RunId,
    call: Annotated[
        str | None,
        typer.Argument(
            metavar="CALL", help="The idempotency key of the call. `orga inbox` shows it.", show_default=False
        ),
    ] = None,
    *,
    result: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="The result; @FILE reads it from a file.")
    ] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="The failure instead, which the model reads.")] = "",
    nothing_done: Annotated[
        bool, typer.Option("--nothing-done", help="The call failed and had no effect, so it may be made again.")
    ] = False,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who completes it. Default: your login name.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """The result is checked by the output schema of the tool, if it has one. The first one counts, and the same again
    changes nothing.

    Example: orga complete ID 3f29c5d27a4b91e0c6d8f7130a5b62e4 --result '{"score": 640}'

    Example: orga complete ID --error "The bureau has no such person." --nothing-done
    """
    if (result is None) == (not error):
        raise UsageError("give one of --result JSON, --error TEXT")
    if nothing_done and not error:
        raise UsageError("--nothing-done: belongs to --error")
    if not (who := login_name() if by is None else by):
        raise UsageError("--by: cannot determine your user name. Add --by NAME")
    value = None if result is None else _parsed_result(text_or_file("--result", result))
    given: dict[str, Any] = {"result": value, "error": error, "nothing_done": nothing_done, "by": who}
    return run_interruptible(_complete(run, call, given, config, as_json=json))


async def _complete(named: str, key: str | None, given: dict[str, Any], config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        run = here.run(run_id)
        key = key or await _only_waiting_call(run)
        await run.complete_tool_call(key, **given)
    if as_json:
        write_json({"id": run_id, "call": key, "by": given["by"]})
    else:
        write_note(f"completed {on_one_line(key)} of {run_id}; follow it: orga attach {quote(run_id)}")
    return 0


async def _only_waiting_call(run: AgentHandle) -> str:
    waits = [wait for wait in (await run.live_status()).waiting if wait.kind == "result"]
    if len(waits) == 1:
        return waits[0].wait_id
    if not waits:
        raise UsageError(f"no call of run {run.id!r} waits for its result. `orga inbox` shows what waits")
    waiting = ", ".join(f"{wait.wait_id} ({on_one_line(str(wait.data.get('tool')))})" for wait in waits)
    raise UsageError(f"{len(waits)} calls of run {run.id!r} wait for their results. Name one: {waiting}")


def _parsed_result(text: str) -> Any:
    try:
        value = loads(text, object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError) as error:
        hint = """A text is JSON in quotes: --result '"done"'"""
        raise UsageError(f"--result: this is no valid JSON ({error}). {hint}") from None
    if value is None or value == "":
        raise UsageError("--result: is empty. Give a value, or --error TEXT")
    return value
