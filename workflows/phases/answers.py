"""A final answer that the gate has judged: what is wrong with it goes back to the model."""

from dataclasses import replace

from orga.workflows.decisions import observe
from orga.workflows.decisions.decision import due, with_undecided_answer
from orga.workflows.phases.gate import Conclusion, Gated, conclusion
from orga.workflows.phases.run import Run


async def check_answer(run: Run, gated: Gated) -> Gated:
    """Find the first thing that is wrong with the answer."""
    return replace(gated, conclusion=_problem(run, gated))


def _problem(run: Run, gated: Gated) -> Conclusion | None:
    verdict = gated.answer
    if verdict is None:
        return None
    if verdict.decision == "invalid":
        return conclusion(observe.with_misfit, gated.judged, verdict)
    if verdict.decision != "allow":
        return conclusion(observe.with_denied_answer, gated.reply, verdict)
    if due(run.state):
        return conclusion(with_undecided_answer, gated.reply)
    if not gated.judged.is_usable:
        return conclusion(observe.with_repair, gated.judged)
    return None


def conclude(run: Run, gated: Gated) -> None:
    """Take a reply in that asks for no calls, or is to be repaired: an answer as the stages have it."""
    run.change(gated.conclusion or conclusion(observe.with_answer, gated.reply))
