"""Finds the prompt of a model call, or the output of a goal's step, in a run's history. `orga steps` shows them."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import ValidationError
from temporalio.client import Client

from orga.activities.models.model_calls import model_request
from orga.activities.ports import ModelContext, ModelRequest
from orga.client.errors import NoPrompt, OrgaError
from orga.client.history.chain import RunChain, run_chain
from orga.client.history.events import happenings, passed_on_state
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.types.context import DigestMismatch, ReasonRequest
from orga.workflows.types.control import Note
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.names import GOAL_WORKFLOW, OWN_ACTIVITIES, PLANNED_MODEL, PROMPT_ACTIVITIES, READ_PAST
from orga.workflows.types.status import Happening
from orga.workflows.types.text import known_names_hint, undelimited_text
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.tools import ToolOutput


async def _chain_happenings(client: Client, chain: RunChain) -> AsyncGenerator[Happening]:
    for run_id in chain.run_ids:
        async for happening in happenings(client, chain.workflow_id, run_id):
            yield happening


@dataclass(frozen=True)
class Prompt:
    """The prompt that a model was sent in one iteration."""

    iteration: int
    turn: str
    """`reason` for an agent; `goal_plan` or another goal prompt for a goal."""
    digest: str
    """Digest of the conversation, as the run recorded it. The messages fit it."""
    request: ModelRequest


async def read_prompt(client: Client, workflow_id: str, iteration: int) -> Prompt:
    """Return the prompt of an iteration. No worker is needed.

    Raises:
        RunNotFound, NotAnAgent: The id is not that of a run.
        NoPrompt: There is no prompt in that iteration.
        OrgaError: The history does not contain the messages of the call.
    """
    chain = await run_chain(client, workflow_id)
    search = _PromptSearch(iteration)
    try:
        async for happening in _chain_happenings(client, chain):
            search.feed(happening)
    except (DigestMismatch, ValidationError) as error:
        raise OrgaError(f"the history of {workflow_id!r} is inconsistent: {error}; `orga verify` shows where") from None
    return search.result(chain)


class _PromptSearch:
    """Folds the events of a chain and keeps the prompt of one iteration. If it was sent again, the last one counts."""

    def __init__(self, iteration: int) -> None:
        self._iteration = iteration
        self._fold = ContextFold()
        self._prompt: Prompt | None = None
        self._is_reply_from_plan = False
        self._iterations: list[int] = []

    def feed(self, happening: Happening) -> None:
        if happening.kind == "started":  # each run of the chain has a fold of its own
            self._fold = ContextFold()
        self._fold.feed(happening)
        if happening.name not in PROMPT_ACTIVITIES:
            return
        if happening.kind == "scheduled":
            self._iterations.append(self._fold.iteration)
            if self._fold.iteration == self._iteration:
                self._prompt = self._build_prompt(happening)
        elif happening.kind == "finished" and self._fold.iteration == self._iteration:
            reply = cast("dict[str, Any]", happening.value)
            self._is_reply_from_plan = reply.get("model") == PLANNED_MODEL

    def result(self, chain: RunChain) -> Prompt:
        run = f"run {chain.workflow_id!r}"
        if self._is_reply_from_plan:
            raise NoPrompt(
                f"no model was asked in iteration {self._iteration} of {run}: its plan already had the reply"
            )
        if self._prompt is None:
            asked = self._iterations
            existing = f"there are {asked[0]} to {asked[-1]}" if asked else "no model was asked yet"
            missing = "; the server no longer has its oldest iterations" if chain.is_cut else ""
            raise NoPrompt(f"{run} has no iteration {self._iteration}; {existing}{missing}")
        return self._prompt

    def _build_prompt(self, happening: Happening) -> Prompt | None:
        if self._fold.setup is None:
            return None
        request = ReasonRequest.model_validate(happening.value)
        context = ModelContext(self._fold.setup, self._fold.messages)
        sent = model_request(happening.name, context, request)
        return Prompt(self._iteration, happening.name, request.context.head, sent)


@dataclass(frozen=True)
class StepResult:
    step: str
    place: str
    """Place of the step's latest call, `<iteration>.<index>`, as in `StepExecuted` of the journal."""
    status: str
    output: str
    """The full output, or the reason of a failure."""


class NoOutput(OrgaError):
    """The goal has no such step, or its output is no longer available."""


async def step_output(client: Client, workflow_id: str, step: str) -> StepResult:
    """Return the output of a step of a live or ended goal. No worker is needed.

    Args:
        step: The id of the step in the plan, or the place of its call.

    Raises:
        RunNotFound: No goal has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        NoOutput: There is no such step, or it was not executed yet.
    """
    chain = await run_chain(client, workflow_id, kinds=(GOAL_WORKFLOW,))
    outputs = _StepOutputs()
    async for happening in _chain_happenings(client, chain):
        outputs.feed(happening)
    return outputs.result_for(workflow_id, step)


class _StepOutputs:
    """Folds the events of a goal in order. If a step was executed again, its latest call counts."""

    def __init__(self) -> None:
        self._fold = ContextFold()
        self._planned_steps: dict[str, None] = {}
        self._executed_steps: dict[str, StepResult] = {}
        """By step id. `output` has only the error of a failed step."""
        self._outputs: dict[str, str] = {}
        """Outputs of calls, by place."""
        self._call_ids: dict[str, str] = {}
        """The model's ids of calls, by place."""

    def feed(self, happening: Happening) -> None:
        if happening.kind == "started":  # each run of the chain has a fold of its own
            self._fold = ContextFold()
        self._fold.feed(happening)
        match happening.kind:
            case "started":
                if (state := passed_on_state(happening.value)) is not None:
                    self._add_past_steps(GoalState.model_validate(state))
            case "finished" if happening.name == READ_PAST:
                self._add_past_steps(GoalState.model_validate(happening.value))
            case "finished" if happening.name == "goal_input":
                reply = Reply.model_validate(happening.value)
                for index, call in enumerate(reply.calls):
                    self._call_ids[f"{self._fold.iteration}.{index}"] = call.call_id
            case "finished" if happening.name not in OWN_ACTIVITIES:
                self._outputs[_step_call_place(happening.key)] = ToolOutput.model_validate(happening.value).content
            case "child_finished":
                ended = cast("dict[str, Any]", happening.value or {})
                self._outputs[_step_call_place(delegate_activity_id(happening.key))] = str(ended.get("output", ""))
            case "noted":
                for note in map(Note.model_validate, happening.value or []):
                    self._add_note(note)
            case _:
                pass

    def _add_past_steps(self, past: GoalState) -> None:
        """Add the steps of a fork's past or of deleted segments. The conversation has their results."""
        for step in past.pursuit.steps:
            self._planned_steps[step.id] = None
            if step.state != "open" and step.id not in self._executed_steps:
                status = "failed" if step.error else "ok"
                self._executed_steps[step.id] = StepResult(step.id, step.place, status, step.error)
                self._outputs |= _result_texts(past.conversation.messages, {step.call_id: step.place})

    def _add_note(self, note: Note) -> None:
        if note.event == "StepExecuted":
            step, place, status, error = (str(note.data.get(key, "")) for key in ("step", "place", "status", "error"))
            self._executed_steps[step] = StepResult(step, place, status, output=error)
        elif note.event in {"PlanMade", "PlanAdjusted"}:
            steps = cast("list[dict[str, Any]]", note.data.get("steps") or [])
            self._planned_steps |= dict.fromkeys(str(step.get("id")) for step in steps)

    def result_for(self, workflow_id: str, step: str) -> StepResult:
        """Return the result of a step, given by its id or its place. Raise NoOutput if there is none."""
        result = self._executed_steps.get(step) or self._executed_at(step)
        if result is None:
            raise self._no_output(workflow_id, step)
        place = result.place
        texts = _result_texts(self._fold.messages, {self._call_ids.get(place, ""): place})
        if result.status == "ok":
            texts |= self._outputs
            if place not in texts:
                raise NoOutput(f"the history of {workflow_id!r} no longer has the output of step {result.step!r}")
        return replace(result, output=texts.get(place) or result.output)

    def _executed_at(self, place: str) -> StepResult | None:
        """Return the latest step that was executed by the call at this place."""
        return next((result for result in reversed(self._executed_steps.values()) if result.place == place), None)

    def _no_output(self, workflow_id: str, step: str) -> NoOutput:
        known = [*dict.fromkeys([*self._planned_steps, *self._executed_steps])]
        if step in known:
            return NoOutput(f"step {step!r} of goal {workflow_id!r} has not been carried out yet")
        hint = known_names_hint(step, known) if known else "it has no plan yet"
        return NoOutput(f"goal {workflow_id!r} has no step {step!r}; {hint}")


def _step_call_place(place: str) -> str:
    """Return the place of the step's own call: `2.0` for `2.0.f1`, a call that recovery made for it."""
    return ".".join(place.split(".")[:2])


def _result_texts(messages: Iterable[Message], places: Mapping[str, str]) -> dict[str, str]:
    """Return the results of these calls as the model saw them, by place."""
    results = (message for message in messages if message.role == "tool" and message.call_id in places)
    return {places[message.call_id or ""]: undelimited_text(message.text) for message in results}
