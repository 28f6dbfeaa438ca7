"""Rebuilds the prompt of a model call from the history, and checks every digest up to it."""

from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.service import RPCError

from orga.activities.models.model_context import model_request
from orga.activities.ports import ModelContext, ModelRequest
from orga.client.errors import OrgaError
from orga.client.history.chain import RunChain, history_error, run_chain
from orga.client.history.events import happenings
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.types.context import DigestMismatch, ReasonRequest
from orga.workflows.types.names import PLANNED_MODEL, PROMPT_ACTIVITIES
from orga.workflows.types.status import Happening


@dataclass(frozen=True)
class Prompt:
    """The prompt that a model was sent in one iteration."""

    iteration: int
    turn: str
    """`reason` of an agent's run, `goal_plan` and others of a goal's."""
    digest: str
    """Digest of the conversation as the run recorded it, checked against the messages."""
    request: ModelRequest


class NoPrompt(OrgaError):
    """The run has no such iteration, or no model was called in it."""


async def read_prompt(client: Client, workflow_id: str, iteration: int) -> Prompt:
    """Return the prompt of an iteration. No worker is needed.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        NoPrompt: There is no prompt in that iteration.
            OrgaError: The history does not contain the messages of the call.
    """
    chain = await run_chain(client, workflow_id)
    search = _PromptSearch(iteration)
    try:
        for run_id in chain.run_ids:
            search.begin_run()
            async for happening in happenings(client, workflow_id, run_id):
                search.feed(happening)
    except RPCError as error:
        raise history_error(workflow_id, error) from error
    except (DigestMismatch, ValidationError) as error:
        raise OrgaError(f"the history of {workflow_id!r} is inconsistent: {error}; `orga verify` shows where") from None
    return search.result(chain)


class _PromptSearch:
    """Reads the events of a chain up to the iteration. Its last call counts."""

    def __init__(self, iteration: int) -> None:
        self._iteration = iteration
        self._fold = ContextFold()
        self._prompt: Prompt | None = None
        self._is_planned = False
        self._iterations: list[int] = []

    def begin_run(self) -> None:
        self._fold = ContextFold()

    def feed(self, happening: Happening) -> None:
        self._fold.feed(happening)
        if happening.name not in PROMPT_ACTIVITIES:
            return
        if happening.kind == "scheduled":
            self._iterations.append(self._fold.iteration)
            if self._fold.iteration == self._iteration:
                self._prompt = self._build_prompt(happening)
        elif happening.kind == "finished" and self._fold.iteration == self._iteration:
            reply = cast("dict[str, Any]", happening.value)
            self._is_planned = reply.get("model") == PLANNED_MODEL

    def result(self, chain: RunChain) -> Prompt:
        named = f"run {chain.workflow_id!r}"
        if self._is_planned:
            raise NoPrompt(f"no model was asked in turn {self._iteration} of {named}: its plan already had the reply")
        if self._prompt is None:
            there = (
                f"there are {self._iterations[0]} to {self._iterations[-1]}"
                if self._iterations
                else "no model was asked yet"
            )
            gone = "; the server no longer has its oldest turns" if chain.is_cut else ""
            raise NoPrompt(f"{named} has no turn {self._iteration}; {there}{gone}")
        return self._prompt

    def _build_prompt(self, happening: Happening) -> Prompt | None:
        if self._fold.setup is None:
            return None
        request = ReasonRequest.model_validate(happening.value)
        context = ModelContext(self._fold.setup, self._fold.messages)
        sent = model_request(happening.name, context, request)
        return Prompt(self._iteration, happening.name, request.context.head, sent)
