"""The activities that answer goal prompts. The prompts of a goal are iterations of one conversation."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic_core import to_json
from temporalio import activity

from orga.activities.gate.gate import ArgumentErrors
from orga.activities.models.conversations import Conversations
from orga.activities.models.model_calls import REPLY_SCHEMAS, ModelCalls, Models, model_context, model_request
from orga.activities.replies import (
    MAX_CALLS_BYTES,
    calls_byte_limit,
    normalised_reply,
    text_only_reply,
    with_fitted_arguments,
)
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.goals.requests import (
    GoalReply,
    GoalRequest,
    goal_reply_object,
    referred_steps,
    step_arguments,
    step_skill,
    steps_in_reply,
)
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import PLANNED_MODEL, GoalPromptName
from orga.workflows.types.parts import Part, ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import clip

MAX_JSON_REPLY_BYTES = 60_000
"""Bytes of a reply that has to be JSON. A longer reply is cut, so it cannot be parsed."""

JsonRepair = Callable[[str], Awaitable[str]]
"""Returns the JSON object that a text was meant to be, or "" if that is unclear."""

MAX_CHECKED_STEPS = 30
MAX_PROBLEM_CHARS = 300

_PROMPTS_WITH_PLANS = frozenset[GoalPromptName]({"goal_plan", "goal_decide"})


class GoalActivities:
    """Answers goal prompts with the models that the setup names for the prompt, or else with the goal's own."""

    def __init__(
        self,
        models: Models,
        conversations: Conversations,
        argument_errors: ArgumentErrors,
        repaired_json: JsonRepair,
        secrets: KnownSecrets = NO_SECRETS,
    ) -> None:
        self._calls = ModelCalls(models, secrets)
        self._conversations = conversations
        self._argument_errors = argument_errors
        self._repaired_json = repaired_json

    @activity.defn(name="goal_plan")
    async def plan(self, request: GoalRequest) -> GoalReply:
        """Return a plan as the text of a reply, and the errors in the arguments of its steps."""
        return await self._answer("goal_plan", request)

    @activity.defn(name="goal_decide")
    async def decide(self, request: GoalRequest) -> GoalReply:
        """Return the decision as the text of a reply, and the errors in the arguments of a new plan."""
        return await self._answer("goal_decide", request)

    @activity.defn(name="goal_evaluate")
    async def evaluate(self, request: GoalRequest) -> GoalReply:
        """Return scores as the text of a reply. The run parses them."""
        return await self._answer("goal_evaluate", request)

    @activity.defn(name="goal_compress")
    async def compress(self, request: GoalRequest) -> GoalReply:
        return await self._answer("goal_compress", request)

    @activity.defn(name="goal_summary")
    async def summarise(self, request: GoalRequest) -> GoalReply:
        """Return the final answer. A pipeline gives it in the request. Otherwise a model writes it."""
        if not request.answer:
            return await self._answer("goal_summary", request)
        run, context = await model_context(self._conversations, request)
        reply = normalised_reply(Reply.of(request.answer, finish="stop", model=PLANNED_MODEL), context.messages)
        self._conversations.keep_reply(run, request.iteration, reply)
        return _as_goal_reply(reply)

    @activity.defn(name="goal_input")
    async def prepare_calls(self, request: GoalRequest) -> GoalReply:
        """Return the calls of a round: the plan's calls unchanged, and the calls that the model adds."""
        began = time.monotonic()
        run, context = await model_context(self._conversations, request)
        reply = Reply.of(calls=request.calls, finish="tool_calls", model=PLANNED_MODEL)
        if request.needs_model:
            asked = model_request("goal_input", context, request)
            reply = await self._calls.complete(context.setup, asked, began, _prompt_models(context.setup))
            bytes_left = MAX_CALLS_BYTES - len(to_json(request.calls))
            room = min(calls_byte_limit(context.setup.config.max_output_tokens), bytes_left)
            reply = normalised_reply(_without_planned_model(reply), context.messages, room)
            reply = with_planned_calls(with_fitted_arguments(reply, context.setup.tools), request)
        reply = normalised_reply(reply, context.messages)  # the plan's calls need unique ids, too
        self._conversations.keep_reply(run, request.iteration, reply)
        return _as_goal_reply(reply)

    async def _answer(self, prompt: GoalPromptName, request: GoalRequest) -> GoalReply:
        """Return a model's answer. If the prompt asks for JSON, almost valid JSON is repaired. A plan is checked."""
        began = time.monotonic()
        run, context = await model_context(self._conversations, request)
        setup = context.setup
        asked = model_request(prompt, context, request)
        reply = normalised_reply(await self._calls.complete(setup, asked, began, _prompt_models(setup)), ())
        repaired, text = "", reply.text
        if prompt in REPLY_SCHEMAS:
            repaired = await self._repaired_text(prompt, text)
            text = repaired or clip(text, MAX_JSON_REPLY_BYTES)
        recorded = _without_planned_model(text_only_reply(reply, text))
        self._conversations.keep_reply(run, request.iteration, recorded)
        answer = _as_goal_reply(recorded).with_repaired(repaired=bool(repaired)).with_called(reply.calls)
        if prompt not in _PROMPTS_WITH_PLANS:
            return answer
        return answer.with_problems(tuple(await self._plan_problems(prompt, setup, text)))

    async def _repaired_text(self, prompt: GoalPromptName, text: str) -> str:
        """Return almost valid JSON as valid JSON. Return "" if the text is valid already or cannot be repaired."""
        try:
            goal_reply_object(prompt, text)
        except ValueError:
            repaired = await self._repaired_json(text)
        else:
            return ""
        if repaired:
            activity.logger.warning("the reply was not valid JSON, and was repaired (%d characters)", len(text))
        return repaired

    async def _plan_problems(self, prompt: GoalPromptName, setup: Setup, text: str) -> list[str]:
        """Return the errors in arguments that a plan gives. The run checks the rest of the plan."""
        try:
            listed = steps_in_reply(goal_reply_object(prompt, text))
        except ValueError:
            return []
        steps = cast("list[Any]", listed)[:MAX_CHECKED_STEPS] if isinstance(listed, list) else []
        return [problem for step in steps for problem in await self._step_problems(setup, step)]

    async def _step_problems(self, setup: Setup, step: Any) -> list[str]:
        fields = as_object(step)
        arguments, skill = step_arguments(fields), step_skill(fields)
        spec = setup.tool(skill)
        if spec is None or not isinstance(arguments, dict):
            return []
        if any(referred_steps(cast("object", arguments))):
            return []  # results of other steps complete these arguments later, and the gate checks them then
        try:
            errors = await self._argument_errors(spec.parameters, cast("dict[str, Any]", arguments))
        except ValueError as error:
            errors = [f"the schema of {skill} cannot be used: {error}"]
        name = str(fields.get("id", skill))[:40]
        return [f"{name}: arguments: {'; '.join(errors)}"[:MAX_PROBLEM_CHARS]] if errors else []


def with_planned_calls(reply: Reply, request: GoalRequest) -> Reply:
    """Return the reply with the plan's calls in their places.

    The model should make only the calls of `open_places`. Many models make all calls of the round instead. Then the
    plan's calls replace theirs. A reply with any other number of calls stays unchanged, and the run refuses it.
    """
    if len(reply.calls) == request.round_size:
        positions = iter(range(request.round_size))
    elif len(reply.calls) == len(request.open_places):
        positions = iter(request.open_places)
    else:
        return reply
    # A call in a planned place is dropped. A planned call goes before the next call of an open place, or to the end.
    planned, parts = request.planned_calls, list[Part]()
    for part in reply.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
        elif (position := next(positions)) not in planned:
            planned_before = [planned.pop(earlier) for earlier in [*planned] if earlier < position]
            parts += [*planned_before, part]
    return reply.with_differences(parts=(*parts, *planned.values()))


def _without_planned_model(reply: Reply) -> Reply:
    """Return the reply without PLANNED_MODEL. A model's reply with that name would not be counted."""
    return reply.with_differences(model=None) if reply.model == PLANNED_MODEL else reply


def _as_goal_reply(reply: Reply) -> GoalReply:
    return GoalReply(**{name: getattr(reply, name) for name in reply.model_fields_set})


def _prompt_models(setup: Setup) -> tuple[str, ...]:
    """Return the models of this goal prompt, in fallback order. The activity's type is the prompt's name."""
    return setup.models_for(activity.info().activity_type)
