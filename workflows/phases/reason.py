"""Reason: one model call, its context handed over by reference; a second where that was too long for the provider."""

from dataclasses import dataclass

from orga.workflows.decisions.limits import output_allowance, server_limit_s
from orga.workflows.decisions.replies import ClassifiedReply, classify_reply
from orga.workflows.decisions.sizes import halved_budget, message_budget, with_calibration, with_frame
from orga.workflows.phases.compaction import compact_context
from orga.workflows.phases.control.failures import failure_text
from orga.workflows.phases.failures import is_context_overflow, is_out_of_time
from orga.workflows.phases.model_call import ModelCall, reply_to
from orga.workflows.phases.run import Run
from orga.workflows.types.context import ContextRef, ReasonRequest
from orga.workflows.types.digest import record_digest, reference
from orga.workflows.types.messages import Reply
from orga.workflows.types.state import Conversation

MAX_ATTEMPTS = 10


@dataclass(frozen=True)
class Proposed:
    """What the model proposes, and the conversation once the model has seen all of it."""

    judged: ClassifiedReply
    seen: Conversation


@dataclass(frozen=True)
class NoReply:
    """The model call did not succeed."""

    detail: str
    is_out_of_time: bool = False
    """The server gave up at its limit, which knows nothing of pauses: with time left on the clock it is asked again."""
    is_overflow: bool = False
    """The context was too long for the provider."""


async def propose(run: Run) -> Proposed | NoReply:
    """Ask the model for its next step; a context too long for it is halved, where it can be, and sent once more.

    Raises:
        Interrupted: The run is to end first.
    """
    run.change(with_frame)
    first = await compact_context(run, message_budget(run.state))
    answer = await _ask(run, *first)
    if isinstance(answer, Proposed) or not answer.is_overflow:
        return answer
    sent = first[1]
    shorter = await compact_context(run, halved_budget(sent))
    return await _ask(run, *shorter) if shorter[1].tokens < sent.tokens else answer


def proposed_before(run: Run, reply: Reply) -> Proposed:
    """Return what was proposed to the run before this one, which continued as new while people held it up."""
    return Proposed(classify_reply(reply, wants_data=run.setup.output_schema is not None), run.state.conversation)


async def _ask(run: Run, context: ContextRef, seen: Conversation) -> Proposed | NoReply:
    request = _request(run, context)
    limit_s = server_limit_s(run.state, run.now)
    reply = await reply_to(run, ModelCall("reason", str(request.iteration), request, limit_s, MAX_ATTEMPTS))
    if not isinstance(reply, Reply):
        return NoReply(failure_text(reply), is_out_of_time(reply), is_context_overflow(reply))
    run.change(with_calibration, seen, reply.usage.input_tokens)
    return Proposed(classify_reply(reply, wants_data=run.setup.output_schema is not None), seen)


def _request(run: Run, context: ContextRef) -> ReasonRequest:
    state, config = run.state, run.config
    request = ReasonRequest(iteration=state.iteration + 1, context=context)
    if not state.conversation.sent:
        request = request.with_setup(reference(record_digest(run.setup)))
    allowance = output_allowance(state, config)
    if allowance < config.max_output_tokens:
        request = request.with_max_output_tokens(allowance)
    return request
