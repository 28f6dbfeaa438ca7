"""How the loop's own tools are carried out: no activity stands behind them.

All but `delegate`, which can fail (see `execute_once`), and `saga`, which makes calls (see `phases/act.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from orga.workflows.decisions import decision
from orga.workflows.decisions.calls import not_run
from orga.workflows.decisions.control.answers import question_of
from orga.workflows.decisions.decision import reminder, with_undecided
from orga.workflows.decisions.observe import with_termination
from orga.workflows.phases.control.pace import ask_for_answer
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.phases.run import Run
from orga.workflows.types.loop_tools import ASK_USER, DECIDE, TERMINATE
from orga.workflows.types.recovery import Outcome

ByTheLoop = Callable[[Run, AllowedCall, str], Awaitable[Outcome]]
"""Of a run, an allowed call and its place: its outcome."""


async def _end(run: Run, permitted: AllowedCall, _: str) -> Outcome:
    if undecided := run.state.due_decisions:
        run.change(with_undecided)
        told = f"[Not ended] {reminder(undecided)}"
        return Outcome(call=permitted.call, status="ok", text="").with_words(before=told)
    arguments = permitted.call.arguments
    run.change(with_termination, str(arguments.get("reason", "")), str(arguments.get("output", "")))
    news = "Guidance from the operator arrived" if run.state.inbox else "The operator has calls sent again"
    text = "[Ended]" if run.state.stop else f"[Not ended] {news}; take it into account."
    return Outcome(call=permitted.call, status="ok", text="").with_words(before=text)


async def _decide(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    """Return the outcome; what decides nothing is told as not run."""
    call = permitted.call
    try:
        name, decided = decision.decision_of(run.state, call)
    except ValueError as error:
        return not_run(call, str(error))
    run.change(decision.with_decision, place, name, decided)
    return Outcome(call=call, status="ok", text="").with_words(
        before=f"[Decided] {name}: {decision.decision_words(decided)}"
    )


async def _ask_user(run: Run, permitted: AllowedCall, place: str) -> Outcome:
    """Return what a person answers; who ends the run by it answers nothing."""
    call, given = permitted.call, permitted.call.arguments
    if given.get("options") and given.get("default", "") not in {"", *given["options"]}:
        return not_run(call, "default: give one of the options")
    question = question_of(
        place,
        str(given["question"]),
        run.now,
        place=place,
        options=given.get("options", ()),
        default=given.get("default", ""),
        expires_s=given.get("expires_s"),
    )
    try:
        decided = await ask_for_answer(run, question)
    except Interrupted:
        return not_run(call, "the run ended before anybody answered")
    if decided.choice == "skip":
        why = decided.reason or "the operator gives no answer"
        return Outcome(call=call, status="ok", text="").with_words(before=f"[No answer] {why}; go on without.")
    how = f"[Default answer: {decided.reason}]" if not decided.by and decided.reason else "[Answer of the operator]"
    return Outcome(call=call, status="ok", text=decided.result).with_words(before=f"{how}\n")


BY_THE_LOOP: Mapping[str, ByTheLoop] = {TERMINATE: _end, DECIDE: _decide, ASK_USER: _ask_user}
