"""Finds the full output of a goal's step in its history. The journal only refers to it by its place."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.errors import OrgaError
from orga.client.history.chain import history_error, run_chain
from orga.client.history.events import happenings
from orga.workflows.decisions.recount import ContextFold
from orga.workflows.types.control import Note
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.names import GOAL_WORKFLOW, OWN_ACTIVITIES, READ_PAST
from orga.workflows.types.status import Happening
from orga.workflows.types.text import known_names_hint, undelimited_text
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.tools import ToolOutput


@dataclass(frozen=True)
class StepResult:
    step: str
    place: str
    """Place of its latest call, `<turn>.<index>`, as in `StepExecuted` of the journal."""
    status: str
    output: str
    """The full output, or the reason of a failure."""


class NoOutput(OrgaError):
    """The goal has no such step, or its output is no longer available."""


async def step_output(client: Client, workflow_id: str, step: str) -> StepResult:
    """Return the output of a step, of a live or an ended goal. No worker is needed.

    Args:
        step: The id of the step in the plan, or the place of its call.

    Raises:
        RunNotFound: No goal has this id.
        NotAnAgent: The id belongs to a workflow of another type.
        NoOutput: There is no such step, or it was not executed yet.
    """
    chain = await run_chain(client, workflow_id, kinds=(GOAL_WORKFLOW,))
    found = _StepOutputs()
    try:
        for run_id in chain.run_ids:
            found.begin_run()
            async for happening in happenings(client, workflow_id, run_id):
                found.feed(happening)
    except RPCError as error:
        raise history_error(workflow_id, error) from error
    return found.result_for(workflow_id, step)


class _StepOutputs:
    """Folds the events of a goal in order. If a step was executed again, its latest call counts."""

    def __init__(self) -> None:
        self._fold = ContextFold()
        self._planned_steps: dict[str, None] = {}
        self._executed_steps: dict[str, StepResult] = {}
        """By step. The output is only the error of a failure."""
        self._outputs: dict[str, str] = {}
        self._call_ids: dict[str, str] = {}
        """Outputs and the ids of the calls, by place."""

    def begin_run(self) -> None:
        self._fold = ContextFold()

    def feed(self, happening: Happening) -> None:
        self._fold.feed(happening)
        match happening.kind:
            case "started" if len(happening.value or []) > 1 and happening.value[1] is not None:
                self._add_past_steps(GoalState.model_validate(happening.value[1]))
            case "finished" if happening.name == READ_PAST:
                self._add_past_steps(GoalState.model_validate(happening.value))
            case "finished" if happening.name == "goal_input":
                reply = Reply.model_validate(happening.value)
                self._call_ids |= {f"{self._fold.iteration}.{n}": call.call_id for n, call in enumerate(reply.calls)}
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
        """Add steps from a fork's past or from deleted runs. Their results are in the conversation."""
        for step in past.pursuit.steps:
            self._planned_steps[step.id] = None
            if step.state != "open" and step.id not in self._executed_steps:
                status = "failed" if step.error else "ok"
                self._executed_steps[step.id] = StepResult(step.id, step.place, status, step.error)
                self._outputs |= _result_texts(past.conversation.messages, {step.call_id: step.place})

    def _add_note(self, note: Note) -> None:
        if note.event == "StepExecuted":
            found = StepResult(*(str(note.data.get(key, "")) for key in ("step", "place", "status", "error")))
            self._executed_steps[found.step] = found
        elif note.event in {"PlanMade", "PlanAdjusted"}:
            steps = cast("list[dict[str, Any]]", note.data.get("steps") or [])
            self._planned_steps |= dict.fromkeys(str(step.get("id")) for step in steps)

    def result_for(self, workflow_id: str, named: str) -> StepResult:
        """Return the outcome of the step, or raise NoOutput."""
        executed = [found for found in self._executed_steps.values() if named in {found.step, found.place}]
        if not executed:
            known = [*dict.fromkeys([*self._planned_steps, *self._executed_steps])]
            if named in known:
                raise NoOutput(f"step {named!r} of goal {workflow_id!r} has not been carried out yet")
            there = known_names_hint(named, known) if known else "it has no plan yet"
            raise NoOutput(f"goal {workflow_id!r} has no step {named!r}; {there}")
        found = self._executed_steps.get(named, executed[-1])
        place, is_ok = found.place, found.status == "ok"
        shown = _result_texts(self._fold.messages, {self._call_ids.get(place, ""): place})
        texts = {**shown, **self._outputs} if is_ok else shown
        if place not in texts and is_ok:
            raise NoOutput(f"the history of {workflow_id!r} does not hold the output of step {found.step!r} any more")
        return replace(found, output=texts.get(place) or found.output)


def _step_call_place(place: str) -> str:
    """Return the place of the call that an attempt or alternative belongs to: `2.0` of `2.0.f1`."""
    return ".".join(place.split(".")[:2])


def _result_texts(messages: Iterable[Message], places: Mapping[str, str]) -> dict[str, str]:
    """Return, by place, the results of these calls as the model saw them."""
    results = (message for message in messages if message.role == "tool" and message.call_id in places)
    return {places[message.call_id or ""]: undelimited_text(message.text) for message in results}
