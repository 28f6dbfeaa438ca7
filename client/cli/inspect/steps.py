"""`orga steps`: the phases of a goal as a table, one of its prompts, or the output of a step."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json

from orga.client.cli.connection import CliContext, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.inspect.status import message_lines
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.shown.text import (
    separated_blocks,
    terminal_line,
    write_document,
    write_json,
    write_note,
    write_result,
)
from orga.client.history.steps import Prompt, StepResult, read_prompt, step_output
from orga.client.journal import event_types as on
from orga.client.journal.phases import OVERRIDE, GoalPhases, Guidance, Phase, goal_phases
from orga.client.journal.reading import read_journal
from orga.workflows.types.messages import Message
from orga.workflows.types.names import AGENT_WORKFLOW
from orga.workflows.types.status import ShownMessage
from orga.workflows.types.text import full_field_text

COLUMNS = 80
"""Characters of a line of the table, whatever the terminal's width."""

_HEADS = ("ITERATION", "PHASE", "TIME", "SCORE", "WHAT")

_ScoredText = tuple[str, str]
"""A score, which may be empty, and the text of the table's last column."""


def phase_table(shown: GoalPhases) -> list[str]:
    goals = {step.id: step.goal for phase in shown.phases for step in phase.plan}
    cells = [_HEADS, *(row for phase in shown.phases for row in _phase_rows(phase, goals))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADS) - 1)]
    return [_table_line(row, widths) for row in cells]


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    iteration, phase, time, score, what = row
    iteration_width, phase_width, time_width, score_width = widths
    head = f"{iteration:>{iteration_width}}  {phase:<{phase_width}}  {time:>{time_width}}  {score:>{score_width}}  "
    return f"{head}{terminal_line(what, COLUMNS - len(head))}".rstrip()


def _phase_rows(phase: Phase, goals: dict[str, str]) -> list[tuple[str, ...]]:
    texts = _phase_texts(phase, goals) or [("", "-")]
    iteration = str(phase.turn) if phase.phase != "ask" else ""
    head, blank = (iteration, phase.phase, phase_duration_text(phase.duration_s)), ("", "", "")
    return [(*(blank if index else head), *text) for index, text in enumerate(texts)]


def _phase_texts(phase: Phase, goals: dict[str, str]) -> list[_ScoredText]:
    """Return guidance, errors, steps, scores, decision, plan, question, answer and memory of a phase."""
    return [
        *(("", _guidance_text(each)) for each in phase.guidance),
        *(("", f"✗ {error}") for error in phase.errors),
        *(_step_outcome_text(each, goals) for each in phase.executed),
        *(("", f"{each.step} is now {each.skill}, by the operator") for each in phase.overridden),
        *((f"{each.score or 0:.2f}", f"{each.step} {each.quality or None}") for each in phase.evaluated),
        *(("", line) for line in (_decision_lines(phase.decision) if phase.decision else ())),
        *(("", _planned_step_text(each)) for each in phase.plan),
        *([("", f"? {phase.question.question}")] if phase.question else []),
        *([("", f"! {_answer_text(phase.answer)}")] if phase.answer else []),
        *([("", f"memory: {phase.memory}")] if phase.memory else []),
        *(("", line) for line in (_memory_lines(phase.compressed) if phase.compressed else ())),
        *([("", f"answers: {phase.reply_text}")] if phase.phase == "summarise" else []),
        *([("", "its JSON was repaired")] if phase.repaired else []),
    ]


def _step_outcome_text(step: on.StepExecuted, goals: dict[str, str]) -> _ScoredText:
    is_ok = step.status == "ok"
    why = goals.get(step.step, "") if is_ok else f"{step.status}: {step.error}"
    return "", f"{'✓' if is_ok else '✗'} {step.step} {step.skill}: {why}"


def _guidance_text(guidance: Guidance) -> str:
    value = guidance.text if "text" in guidance.model_fields_set else None
    text = value if isinstance(value, str) else to_json(value).decode()
    if guidance.refused is None:
        return f"received {guidance.kind}: {text}"
    return f"refused {guidance.kind}: {guidance.refused.removeprefix(f'{OVERRIDE}: ')}: {text}"


def _planned_step_text(step: on.RecordedStep) -> str:
    needs = ", ".join(step.depends_on)
    return f"{step.id} {step.skill}: {step.goal}{f' (after {needs})' if needs else ''}"


def _decision_lines(decision: on.DecisionMade) -> list[str]:
    confidence = f", confidence {decision.confidence}" if decision.confidence is not None else ""
    why = [f"because: {decision.reason}"] if decision.reason else []
    return [f"{decision.action} ({decision.by}{confidence})", *why]


def _answer_text(answer: on.QuestionAnswered) -> str:
    return f"{answer.by}: {answer.answer}" if answer.by else answer.answer


def _memory_lines(compressed: on.MemoryCompressed) -> list[str]:
    how = "" if compressed.taken else ", kept as it was"
    why = [f"it would lose {', '.join(compressed.lost)}"] if compressed.lost else []
    return [f"memory: {compressed.before} bytes to {compressed.after}{how}", *why]


def phase_duration_text(seconds: float) -> str:
    """Return a duration such as `4.2 s`, `3:05 m` or `1:20 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} m" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"


async def steps(
    run: RunId,
    *,
    prompt: Annotated[
        int | None,
        typer.Option("--prompt", metavar="N", min=1, help="Show the prompt of iteration N as the model received it."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="STEP", help="Show the whole output of this step. A call's place works too."),
    ] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """--prompt rebuilds a prompt from the history and checks every digest. It also works for agents' runs.

    --output prints the result of one step. No worker is needed.

    Example: orga steps ID

    Example: orga steps ID --prompt 3

    Example: orga steps ID --output s1
    """
    if prompt is not None and output is not None:
        raise UsageError("--prompt: cannot be combined with --output. Give one of them")
    async with run_context(run, config) as (context, run_id):
        if output is not None:
            _show_output(run_id, await step_output(context.client, run_id, output), as_json=json)
        elif prompt is not None:
            _show_prompt(await read_prompt(context.client, run_id, prompt), as_json=json)
        else:
            _show_phases(run_id, await _read_phases(context, run_id), as_json=json)


async def _read_phases(context: CliContext, run_id: str) -> GoalPhases:
    described = await context.run(run_id).describe()
    if described.workflow_type == AGENT_WORKFLOW:
        raise UsageError(
            f"{run_id!r} is an agent's run, which has no plan. `orga journal` shows what it did, "
            "`orga steps --prompt N` the prompt of iteration N"
        )
    return await goal_phases(read_journal(context.client, run_id))


def _show_phases(run_id: str, shown: GoalPhases, *, as_json: bool) -> None:
    if as_json:
        write_json({"id": run_id, **_phases_json(shown)})
        return
    ending = shown.run.ending or on.Terminated(reason="goes on")
    why = f": {terminal_line(ending.detail, 200)}" if ending.detail else ""
    write_result(f"{full_field_text(run_id)}  {ending.reason}{why}", f"  {terminal_line(shown.run.task, 400)}")
    if shown.phases:
        write_result(*phase_table(shown))
    else:
        write_note("no phase has ended yet")


def _show_output(run_id: str, result: StepResult, *, as_json: bool) -> None:
    if as_json:
        write_json({"id": run_id, **asdict(result)})
        return
    write_note(f"{terminal_line(result.step, 100)} {result.status}, call {result.place} of {full_field_text(run_id)}")
    write_document(result.output)


def _phases_json(shown: GoalPhases) -> dict[str, Any]:
    phases = TypeAdapter(list[Phase]).dump_python(shown.phases, mode="json", exclude_unset=True)
    for fields, phase in zip(phases, shown.phases, strict=True):
        fields["ended_at"] = phase.ended_at.isoformat()
    ending = shown.run.ending
    return {"goal": shown.run.task, "phases": phases, "ending": ending.reason_and_detail if ending else None}


def _show_prompt(prompt: Prompt, *, as_json: bool) -> None:
    request = prompt.request
    tools = [tool.name for tool in request.tools]
    messages = [*(Message.of("system", text) for text in request.system), *request.messages]
    shown = [ShownMessage.of(message) for message in messages]
    facts = {
        "turn": prompt.iteration,
        "kind": prompt.turn,
        "model": request.model,
        "tools": tools,
        "tool_choice": request.tool_choice,
        **request.settings.model_dump(),
        "max_output_tokens": request.max_output_tokens,
        "digest": prompt.digest,
    }
    if as_json:
        write_json({**facts, "messages": [message.model_dump(mode="json") for message in shown]})
        return
    write_note(
        f"iteration {prompt.iteration} ({prompt.turn}): {len(shown)} messages to {full_field_text(request.model)}, "
        f"at most {request.max_output_tokens} tokens; digest {prompt.digest} holds",
        f"tools ({request.tool_choice}): {terminal_line(', '.join(tools) or 'none', 400)}",
    )
    write_result(*separated_blocks(map(message_lines, shown)))
