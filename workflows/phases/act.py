"""Act: the allowed calls run in parallel, each an activity whose type is the tool's name."""

import asyncio
from dataclasses import dataclass

from temporalio import workflow

from workflows.decisions.dispatch import turned_down, with_under_way
from workflows.decisions.outcomes import refused, with_change
from workflows.phases.attempt import outcome_of
from workflows.phases.calls import execute_call
from workflows.phases.gate import Gated, GateResult
from workflows.phases.interrupt import settle
from workflows.phases.run import Run
from workflows.types.loop_tools import loop_tool
from workflows.types.messages import Reply
from workflows.types.outcome import Outcome


@dataclass(frozen=True)
class Acted:
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    results: tuple[GateResult, ...]
    outcomes: tuple[Outcome, ...]


async def run_tools(run: Run, gated: Gated) -> Acted:
    """Run what the gate allowed, at most `max_concurrent_tools` at a time; answer every call whatever happens."""
    iteration = run.state.iteration
    run.brought = 0
    places = [index for index, result in enumerate(gated.results) if result.permitted is not None]
    down = turned_down(run.state, gated.allowed)
    outcomes = {places[nth]: outcome for nth, outcome in down.items()}
    begun = [call for nth, call in enumerate(gated.allowed) if nth not in down]
    run.change(with_under_way, begun)
    tasks: dict[int, asyncio.Task[Outcome]] = {}
    for index, result in enumerate(gated.results):
        if result.permitted is not None and index not in outcomes:
            tasks[index] = asyncio.create_task(execute_call(run, result.permitted, f"{iteration}.{index}"))
    plans = [task for index, task in tasks.items() if loop_tool(gated.results[index].call.name).is_plan]
    if tasks:
        await settle([task for task in tasks.values() if task not in plans], run.is_interrupted)
    if plans:  # they see an interruption by themselves, and need the time to take back what they did
        await workflow.wait_condition(lambda: all(task.done() for task in plans))
    for index, result in enumerate(gated.results):
        if index in tasks and result.permitted is not None:
            outcomes[index] = with_change(outcome_of(tasks[index], result.permitted), result.verdict)
        elif index not in outcomes:
            outcomes[index] = result.rejected or refused(result.call, result.verdict)
    return Acted(gated.reply, gated.results, tuple(outcomes[index] for index in range(len(gated.results))))
