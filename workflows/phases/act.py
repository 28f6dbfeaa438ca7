"""Act: the allowed calls run in parallel, each an activity whose type is the tool's name.

So are lookups of what the task refers to, before the first reasoning step, and dead letters that an operator wants sent
again under the key that they had: each passes the gate like any call.
"""

import asyncio

from temporalio import workflow

from orga.workflows.decisions import hydration, recovery, steps
from orga.workflows.decisions.calls import idempotency_key, refused, with_change
from orga.workflows.decisions.dispatch import turned_down, with_attempts, with_under_way
from orga.workflows.decisions.hydration import references_in
from orga.workflows.decisions.limits import tool_calls_left
from orga.workflows.decisions.observe import with_outcomes
from orga.workflows.decisions.recovery import with_success
from orga.workflows.decisions.summaries import with_calls
from orga.workflows.phases import gate, stages
from orga.workflows.phases.attempt import Failed, Place, outcome_of
from orga.workflows.phases.control.pace import checkpoint, enter, phase_span, wait_if_paused
from orga.workflows.phases.control.run import CutShort, Interrupted, settle
from orga.workflows.phases.gate import AllowedCall, Gated, GateResult
from orga.workflows.phases.loop_tools import BY_THE_LOOP
from orga.workflows.phases.questions import ask_approval, confirm_when_resumed
from orga.workflows.phases.recovery import execute_once, recover
from orga.workflows.phases.run import Run, show_dead_letters
from orga.workflows.phases.saga import execute_saga
from orga.workflows.types.hydration import PreHydration
from orga.workflows.types.loop_tools import SAGA, loop_tool
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.recovery import DeadLetter, Outcome
from orga.workflows.types.value import Value
from orga.workflows.types.versions import STOPPED_STEPS_COUNTED


class Acted(Value):
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    results: tuple[GateResult, ...]
    outcomes: tuple[Outcome, ...]


async def execute_reply(run: Run, gated: Gated, doing: str) -> Acted:
    """Carry out what the gate allowed of a reply, and take in what comes of it."""
    run.change(with_calls, gated.reply.calls, [each.verdict for each in gated.results])
    enter(run, doing)
    with phase_span("act", run.state.iteration):
        acted = await run_tools(run, gated)
    verdicts = tuple(each.verdict for each in acted.results)
    denied = steps.repeated(acted.outcomes, verdicts, "denied")
    invalid = steps.invalid_calls(acted.outcomes, verdicts)
    if steps.is_all_stopped(acted.outcomes) and workflow.patched(STOPPED_STEPS_COUNTED):
        invalid.append(steps.NOTHING_BUT_STOPPED)
    run.change(with_outcomes, acted.reply, acted.outcomes, denied, invalid)
    run.change(with_attempts, acted.outcomes, run.now)
    return acted


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


async def execute_call(
    run: Run,
    permitted: AllowedCall,
    activity_id: str,
    is_cut_short: CutShort | None = None,
    *,
    key: str | None = None,
) -> Outcome:
    """Return the outcome of the call, whatever happened to it.

    Args:
        run: The run.
        permitted: What the gate allowed.
        activity_id: `<iteration>.<index>`; iteration 0 stands for what comes before the first reasoning step.
        is_cut_short: Whether the call has to end; None is with the run.
        key: Idempotency key, where the call has one already.
    """
    if by_the_loop := _BY_THE_LOOP.get(permitted.call.name):
        return await by_the_loop(run, permitted, activity_id)
    known = key or idempotency_key(run.state.origin, activity_id, permitted.call)
    place = Place(activity_id, known, is_cut_short)
    attempt = await execute_once(run, permitted, place)
    if isinstance(attempt, Failed):
        return await recover(run, permitted, place, attempt)
    if attempt.status == "ok":
        run.change(with_success, permitted.spec, permitted.call, attempt.text, run.now)
    return attempt


async def _play(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    return await execute_saga(run, permitted, place, execute_call)


_BY_THE_LOOP = {**BY_THE_LOOP, SAGA: _play}
"""A saga makes calls, which are carried out here."""


async def hydrate(run: Run) -> None:
    """Look up, once in a run, what its task refers to; a task that refers to nothing leaves no trace in the history."""
    if run.state.hydrated or run.is_interrupted():
        return
    config = run.config.pre_hydration or PreHydration()
    references = references_in(run.state.input.task, config) if config.enabled else ()
    looked_up = hydration.lookups(references, config, run.setup.tools, tool_calls_left(run.state))
    calls = tuple(lookup.call for lookup in looked_up if lookup.call is not None)
    outcomes: tuple[Outcome, ...] = ()
    if calls:
        enter(run, "hydrating")
        with phase_span("hydrate", 0):
            outcomes = await _outcomes(run, calls, config.timeout_s)
        run.change(hydration.with_calls, outcomes)
    late = "the run was ended before" if run.is_interrupted() else f"not there within {config.timeout_s:g} s"
    by_id = {outcome.call.call_id: outcome for outcome in outcomes}
    run.change(hydration.with_hydration, hydration.found(looked_up, by_id, late), config.max_context_tokens)
    await wait_if_paused(run)


async def _outcomes(run: Run, calls: tuple[ToolCall, ...], timeout_s: float) -> tuple[Outcome, ...]:
    """Return an outcome for each call that was judged; none when the run is ended before."""
    places = tuple(f"0.{index}" for index in range(len(calls)))
    try:
        results = await gate.judge_calls(run, calls, places, "hydration")
        await checkpoint(run)
    except Interrupted:
        return ()
    permitted = {index: result.permitted for index, result in enumerate(results) if result.permitted is not None}
    run.change(with_under_way, [allowed.call for allowed in permitted.values()])
    tasks = {i: asyncio.create_task(execute_call(run, allowed, places[i])) for i, allowed in permitted.items()}
    await _settled(run, list(tasks.values()), timeout_s)
    return tuple(
        outcome_of(tasks[index], permitted[index]) if index in tasks else refused(result.call, result.verdict)
        for index, result in enumerate(results)
    )


async def _settled(run: Run, tasks: list[asyncio.Task[Outcome]], timeout_s: float) -> None:
    """Wait for all of them, for the deadline, or for the end of the run; what is in by then is kept."""
    if not tasks:
        return
    deadline = run.beside(run.event(workflow.sleep(timeout_s, summary="pre-hydration")))
    await settle(tasks, lambda: deadline.done() or run.is_interrupted())
    deadline.cancel()


async def send_again(run: Run) -> None:
    """Carry out the letters that are requeued, one after the other; the model reads what became of them.

    Raises:
        Interrupted: The run is to end; letters that were not sent are kept.
    """
    for letter in run.state.waiting_letters:
        await checkpoint(run, may_roll_over=True)
        await _send(run, letter)


async def _send(run: Run, letter: DeadLetter) -> None:
    place = f"{letter.letter_id}.q{run.state.iteration}"
    results = await gate.judge_calls(run, (letter.call,), (place,), "requeue")
    found = await ask_approval(run, results, place, "requeue", may_roll_over=True)
    result = await confirm_when_resumed(run, await _passed(run, found[0], place))
    run.raise_if_interrupted()
    run.change(recovery.without_letter, letter.letter_id)
    if result.permitted is None:
        outcome = result.rejected or refused(letter.call, result.verdict)
    else:
        outcome = with_change(await _carried(run, result.permitted, place, letter), result.verdict)
    run.change(recovery.with_letter_answered, letter, outcome)
    show_dead_letters(run)


async def _passed(run: Run, result: GateResult, place: str) -> GateResult:
    """Return the result once the stages have let the call pass; one that a person held up is judged once more."""
    if result.permitted is None:
        return result
    stood_still_s = run.state.clock.stopped_s
    if objection := await stages.objection(run, result.permitted, place):
        return result._replace(permitted=None, rejected=objection)
    if run.state.clock.stopped_s == stood_still_s:
        return result
    return await gate.confirm(run, result)


async def _carried(run: Run, permitted: AllowedCall, place: str, letter: DeadLetter) -> Outcome:
    key = recovery.kept_key(letter, permitted.call)
    run.change(with_under_way, [permitted.call])
    task = asyncio.create_task(execute_call(run, permitted, place, key=key))
    await settle([task], run.is_interrupted)
    return outcome_of(task, permitted)
