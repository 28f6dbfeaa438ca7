"""Act: the allowed calls run in parallel, each an activity whose type is the tool's name."""

import asyncio
from dataclasses import dataclass

from temporalio import workflow

from workflows.decisions.dispatch import turned_down, with_under_way
from workflows.decisions.outcomes import refused, with_change
from workflows.phases.attempt import outcome_of
from workflows.phases.calls import carried_out
from workflows.phases.gate import Gated, Ruling
from workflows.phases.interrupt import settle
from workflows.phases.run import Run
from workflows.types.loop_tools import loop_tool
from workflows.types.messages import Reply
from workflows.types.outcome import Outcome


@dataclass(frozen=True)
class Acted:
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    rulings: tuple[Ruling, ...]
    outcomes: tuple[Outcome, ...]


async def run_tools(run: Run, gated: Gated) -> Acted:
    """Run what the gate allowed, at most `max_concurrent_tools` at a time; answer every call whatever happens."""
    iteration = run.state.iteration
    run.brought = 0
    places = [index for index, ruling in enumerate(gated.rulings) if ruling.permitted is not None]
    down = turned_down(run.state, gated.allowed)
    outcomes = {places[nth]: outcome for nth, outcome in down.items()}
    begun = [call for nth, call in enumerate(gated.allowed) if nth not in down]
    run.change(with_under_way, begun)
    tasks: dict[int, asyncio.Task[Outcome]] = {}
    for index, ruling in enumerate(gated.rulings):
        if ruling.permitted is not None and index not in outcomes:
            tasks[index] = asyncio.create_task(carried_out(run, ruling.permitted, f"{iteration}.{index}"))
    plans = [task for index, task in tasks.items() if loop_tool(gated.rulings[index].call.name).is_plan]
    if tasks:
        await settle([task for task in tasks.values() if task not in plans], run.is_interrupted)
    if plans:  # they see an interruption by themselves, and need the time to take back what they did
        await workflow.wait_condition(lambda: all(task.done() for task in plans))
    for index, ruling in enumerate(gated.rulings):
        if index in tasks and ruling.permitted is not None:
            outcomes[index] = with_change(outcome_of(tasks[index], ruling.permitted), ruling.verdict)
        elif index not in outcomes:
            outcomes[index] = ruling.rejected or refused(ruling.call, ruling.verdict)
    return Acted(gated.reply, gated.rulings, tuple(outcomes[index] for index in range(len(gated.rulings))))
