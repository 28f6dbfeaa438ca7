"""`orga steps`: a goal's phases as a table, and the prompt of any turn."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.client.cli.conversation import lines_of
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import document, json_result, note, result
from orga.client.cli.phase_rows import table
from orga.client.cli.session import Session, of_run
from orga.client.cli.terminal_text import apart, on_one_line
from orga.client.history.prompts import Prompt, prompt_of
from orga.client.history.step_outputs import StepResult, step_output
from orga.client.journal.phases import GoalPhases, goal_phases
from orga.client.journal.reading import read_journal
from orga.workflows.types.messages import Message
from orga.workflows.types.names import AGENTS
from orga.workflows.types.status import ShownMessage
from orga.workflows.types.text import in_full


def steps(
    run: RunId,
    *,
    prompt: Annotated[
        int | None, typer.Option("--prompt", metavar="N", min=1, help="The prompt of turn N, as the model was sent it.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="STEP", help="What this step brought, whole; also by the place of its call."),
    ] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show what each phase of a goal brought: steps, scores, decisions, time, what it heard and what went wrong.

    --prompt rebuilds what the model was sent in a turn, of an agent's run too: from the history, every digest checked.
    --output prints the result of one step. No worker is needed.

    Example: orga steps ID

    Example: orga steps ID --prompt 3

    Example: orga steps ID --output s1
    """
    if prompt is not None and output is not None:
        raise UsageError("--prompt and --output: give one of them")
    return completed(_steps(run, prompt, output, config, as_json=json))


async def _steps(named: str, turn: int | None, step: str | None, config: Path | None, *, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        if step is not None:
            _show_output(run_id, await step_output(here.client, run_id, step), as_json=as_json)
        elif turn is not None:
            _show_prompt(await prompt_of(here.client, run_id, turn), as_json=as_json)
        else:
            _show_phases(run_id, await _phases(here, run_id), as_json=as_json)
    return 0


async def _phases(here: Session, run_id: str) -> GoalPhases:
    described = await here.run(run_id).describe()
    if described.workflow_type in AGENTS:
        raise UsageError(
            f"{run_id!r} is an agent's run, which has no plan: `orga journal` shows what it did, "
            "`orga steps --prompt N` what its model was sent in iteration N"
        )
    return await goal_phases(read_journal(here.client, run_id))


def _show_phases(run_id: str, shown: GoalPhases, *, as_json: bool) -> None:
    if as_json:
        json_result({"id": run_id, **_json(shown)})
        return
    ending = shown.ending or {"reason": "goes on", "detail": ""}
    why = f": {on_one_line(str(ending['detail']), 200)}" if ending["detail"] else ""
    result(f"{in_full(run_id)}  {ending['reason']}{why}", f"  {on_one_line(shown.goal, 400)}")
    if shown.phases:
        result(*table(shown))
    else:
        note("no phase has ended yet")


def _show_output(run_id: str, found: StepResult, *, as_json: bool) -> None:
    if as_json:
        json_result({"id": run_id, **asdict(found)})
        return
    note(f"{on_one_line(found.step, 100)} {found.status}, call {found.place} of {in_full(run_id)}")
    document(found.output)


def _json(shown: GoalPhases) -> dict[str, Any]:
    phases = [{**asdict(each), "ended_at": each.ended_at.isoformat()} for each in shown.phases]
    return {**asdict(shown), "phases": phases}


def _show_prompt(prompt: Prompt, *, as_json: bool) -> None:
    request = prompt.request
    tools = [tool.name for tool in request.tools]
    said = [*(Message.of("system", text) for text in request.system), *request.messages]
    shown = [_shown(message) for message in said]
    facts = {
        "turn": prompt.iteration,
        "kind": prompt.turn,
        "model": request.model,
        "tools": tools,
        "tool_choice": request.tool_choice,
        "temperature": request.temperature,
        "max_output_tokens": request.max_output_tokens,
        "digest": prompt.digest,
    }
    if as_json:
        json_result({**facts, "messages": [message.model_dump(mode="json") for message in shown]})
        return
    note(
        f"turn {prompt.iteration} ({prompt.turn}): {len(shown)} messages to {in_full(request.model)}, "
        f"at most {request.max_output_tokens} tokens; digest {prompt.digest} holds",
        f"tools ({request.tool_choice}): {on_one_line(', '.join(tools) or 'none', 400)}",
    )
    result(*apart(map(lines_of, shown)))


def _shown(message: Message) -> ShownMessage:
    fields = {name: getattr(message, name) for name in ShownMessage.model_fields}
    return ShownMessage.model_validate({**fields, "calls": [call.model_dump() for call in message.calls]})
