"""`GoalRun`, an agent's run with a pursuit, and how a goal asks its prompts."""

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec

from temporalio import workflow
from temporalio.exceptions import ActivityError

from orga.workflows.decisions import observe
from orga.workflows.decisions.conversation import with_message_to_model
from orga.workflows.decisions.goals.endings import goal_details, goal_stop, step_outputs, unknown_deliveries
from orga.workflows.decisions.goals.pipelines import pipeline_problem
from orga.workflows.decisions.goals.planners import Planner, planner_for
from orga.workflows.decisions.goals.pursue import with_counted_reply, with_guidance_seen
from orga.workflows.decisions.goals.templates import TemplateProblem
from orga.workflows.phases import act
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span
from orga.workflows.phases.reason import ModelPrompt, ProposedReply, end_without_reply, propose_reply
from orga.workflows.types.context import ContextRef
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.goals.requests import GoalReply, GoalRequest
from orga.workflows.types.knowledge import StepOutput
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import Setup

P = ParamSpec("P")

_PHASE_OF_PROMPT: dict[GoalPromptName, str] = {
    "goal_plan": "planning",
    "goal_input": "executing",
    "goal_evaluate": "evaluating",
    "goal_decide": "deciding",
    "goal_compress": "compressing",
    "goal_summary": "summarising",
}


class GoalRun(Run):
    """A run of `GoalWorkflow`."""

    @property
    def goal(self) -> GoalState:
        if not isinstance(self.state, GoalState):
            raise TypeError(f"a goal needs a GoalState, not {type(self.state).__name__}")
        return self.state

    def change_goal(
        self, decide: Callable[Concatenate[GoalState, P], GoalState], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Change the state like `change_state`, by a function that needs a `GoalState`."""
        self.change_state(lambda _: decide(self.goal, *args, **kwargs))

    @property
    def planner(self) -> Planner:
        """The model or the pipeline that plans this goal."""
        return planner_for(self.goal)

    @property
    def planned_calls(self) -> Sequence[ToolCall | None]:
        """The plan's call for each step of the round. None: the model has to write its arguments."""
        return self.planner.calls(self.goal)

    @property
    def pipeline_name(self) -> str:
        return self.goal.pipeline

    def apply_setup(self, setup: Setup) -> None:
        """Set the setup. Raise InvalidInput for an unknown delivery, or input that does not fit the pipeline."""
        known = tuple(channel.name for channel in setup.deliveries)
        if problem := unknown_deliveries(self.goal.deliver, known) or pipeline_problem(self.goal, setup):
            raise InvalidInput(problem)
        super().apply_setup(setup)

    def limit_stop(self) -> Stop | None:
        """Return the limit that is reached, or None. The limit of rounds counts only before a round (`execute`)."""
        return goal_stop(self.goal, self.now, counts_rounds=self.goal.pursuit.stage == "execute")

    def evidence_outputs(self) -> tuple[StepOutput, ...]:
        return step_outputs(self.goal)

    def details(self, waits: Sequence[str]) -> str:
        return goal_details(self.goal, waits)


def take_interventions(run: GoalRun, phase: str) -> bool:
    """Move interventions into the conversation. Return True if one of them is guidance.

    Interventions that are not for delegates are no guidance, but messages about steps that people gave. `phase` is the
    phase in which the model reads them.
    """
    waiting = run.state.inbox
    if not waiting:
        return False
    run.change_goal(with_guidance_seen)
    run.change_state(observe.with_inbox_drained, phase)
    still_waiting = run.state.inbox  # it is too long for one step
    applied = waiting[: len(waiting) - len(still_waiting)]
    run.change_goal(run.planner.keep_guidance, applied)
    return any(each.is_for_delegates for each in applied)


async def ask_goal_prompt(
    run: GoalRun,
    prompt_name: GoalPromptName,
    prompt: Callable[[GoalState], str],
    with_given: Callable[[GoalRequest], GoalRequest] = lambda request: request,
) -> ProposedReply | None:
    """Return the model's reply to this prompt, or None if there is none. A template that fails ends the goal.

    If there is neither a reply nor a reason to stop, the phase runs again, because time is left on the clock.

    Args:
        prompt: Returns the text of the prompt.
        with_given: Adds the parts of the reply that the plan already has, so that no model has to write them.

    Both are called after interventions are applied.
    """

    def request(iteration: int, context: ContextRef) -> GoalRequest:
        return with_given(GoalRequest(iteration=iteration, context=context))

    await act.send_requeued_letters(run)
    await pause_checkpoint(run, may_continue_as_new=True)
    phase = _PHASE_OF_PROMPT[prompt_name]
    take_interventions(run, phase)
    enter_phase(run, phase)
    try:
        text, latest = prompt(run.goal), run.state.conversation.messages[-1:]
    except TemplateProblem as error:
        # logged too, because a result that ends at a limit does not show the error
        workflow.logger.warning("no prompt: %s", error)
        run.change_state(observe.with_stop, Stop("error", str(error)))
        return None
    is_asked_again = bool(latest) and latest[0].text == text  # it was not answered in time
    if not is_asked_again:
        run.change_goal(with_message_to_model, text)
    with phase_span(prompt_name, run.state.iteration + 1):
        proposed = await propose_reply(run, ModelPrompt(prompt_name, request, GoalReply))
    if isinstance(proposed, ActivityError):
        await end_without_reply(run, proposed)
        return None
    run.change_goal(with_counted_reply, proposed.classified.reply, proposed.conversation)
    return proposed
