"""The turns of a goal: plan, prepare calls, evaluate, decide, compress, summarise; each a turn of its conversation."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic_core import to_json
from temporalio import activity

from orga.activities.gate.fitted_arguments import with_fitted_arguments
from orga.activities.gate.gate import ArgumentErrors
from orga.activities.models.conversations import Conversations
from orga.activities.models.model_calls import ModelCalls, Models
from orga.activities.models.model_context import model_context, model_request
from orga.activities.replies import MAX_CALLS_BYTES, calls_room, normalised, text_alone
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.goals.requests import (
    GoalReply,
    GoalRequest,
    arguments_given,
    said_in_turn,
    skill_named,
    steps_of,
)
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import PLANNED, GoalTurn
from orga.workflows.types.parts import Part, ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import clip

MAX_WORDS_BYTES = 60_000
"""Of a turn that is asked for JSON; a longer one is cut, and then is none."""

JsonRepair = Callable[[str], Awaitable[str]]
"""Returns the JSON object that a text was meant to be, or "" where it cannot be told."""

MAX_CHECKED_STEPS = 30
MAX_PROBLEM_CHARS = 300


class GoalActivities:
    """Turns, each by the models of its tier, else by the goal's own."""

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
        """Return a plan as the text of a reply, and what is wrong with the arguments of its steps."""
        return await self._plan("goal_plan", request)

    @activity.defn(name="goal_decide")
    async def decide(self, request: GoalRequest) -> GoalReply:
        """Return what is next as the text of a reply, and what is wrong with the arguments of a new plan."""
        return await self._plan("goal_decide", request)

    @activity.defn(name="goal_evaluate")
    async def evaluate(self, request: GoalRequest) -> GoalReply:
        """Return scores as the text of a reply; the run reads them."""
        return await self._said("goal_evaluate", request, MAX_WORDS_BYTES)

    @activity.defn(name="goal_compress")
    async def compress(self, request: GoalRequest) -> GoalReply:
        """Return a shorter memory as the text of a reply."""
        return await self._said("goal_compress", request, MAX_WORDS_BYTES)

    @activity.defn(name="goal_summary")
    async def summarise(self, request: GoalRequest) -> GoalReply:
        """Return the final answer: that of a pipeline as it stands, else the model's."""
        if not request.answer:
            return await self._said("goal_summary", request)
        run, context = await model_context(self._conversations, request)
        reply = normalised(Reply.of(request.answer, finish="stop", model=PLANNED), context.messages)
        self._conversations.keep_reply(run, request.iteration, reply)
        return _own(reply)

    @activity.defn(name="goal_input")
    async def prepare_calls(self, request: GoalRequest) -> GoalReply:
        """Return the calls of a round: those of the plan as they are, and those that the model makes beside them."""
        began = time.monotonic()
        run, context = await model_context(self._conversations, request)
        reply = Reply.of(calls=request.calls, finish="tool_calls", model=PLANNED)
        if request.asks_model:
            asked = model_request("goal_input", context, request)
            reply = await self._calls.complete(context.setup, asked, began, _models(context.setup))
            # no model may pass its calls off as the plan's, which are not counted
            reply = reply.with_differences(model=None) if reply.model == PLANNED else reply
            room = MAX_CALLS_BYTES - len(to_json(request.calls))
            room = min(calls_room(context.setup.config.max_output_tokens), room)
            reply = normalised(reply, context.messages, room)
            reply = with_planned_calls(with_fitted_arguments(reply, context.setup.tools), request)
        reply = normalised(reply, context.messages)
        self._conversations.keep_reply(run, request.iteration, reply)
        return _own(reply)

    async def _plan(self, turn: GoalTurn, request: GoalRequest) -> GoalReply:
        setup, reply = await self._ask(turn, request, MAX_WORDS_BYTES)
        return reply.with_problems(tuple(await self._problems(turn, setup, reply.text)))

    async def _said(self, turn: GoalTurn, request: GoalRequest, most: int | None = None) -> GoalReply:
        return (await self._ask(turn, request, most))[1]

    async def _ask(self, turn: GoalTurn, request: GoalRequest, most: int | None) -> tuple[Setup, GoalReply]:
        began = time.monotonic()
        run, context = await model_context(self._conversations, request)
        asked = model_request(turn, context, request)
        reply = await self._calls.complete(context.setup, asked, began, _models(context.setup))
        reply = normalised(reply, ())
        repaired = "" if most is None else await self._repair(turn, reply.text)
        text = repaired or (reply.text if most is None else clip(reply.text, most))
        spoken = text_alone(reply, text).with_differences(model=None if reply.model == PLANNED else reply.model)
        self._conversations.keep_reply(run, request.iteration, spoken)
        return context.setup, _own(spoken).with_repaired(repaired=bool(repaired)).with_called(reply.calls)

    async def _repair(self, turn: GoalTurn, text: str) -> str:
        """Return a text that is nearly JSON as JSON; "" if it is that already, or never will be."""
        try:
            said_in_turn(turn, text)
        except ValueError:
            repaired = await self._repaired_json(text)
        else:
            return ""
        if repaired:
            activity.logger.warning("the reply is no JSON as it stands, and was repaired (%d characters)", len(text))
        return repaired

    async def _problems(self, turn: GoalTurn, setup: Setup, text: str) -> list[str]:
        """Return what does not fit of arguments that a plan gives; the rest of a plan is the run's to judge."""
        try:
            listed = steps_of(said_in_turn(turn, text))
        except ValueError:
            return []
        steps = cast("list[Any]", listed)[:MAX_CHECKED_STEPS] if isinstance(listed, list) else []
        return [found for step in steps for found in await self._misfits(setup, step)]

    async def _misfits(self, setup: Setup, step: Any) -> list[str]:
        given = cast("dict[str, Any]", step) if isinstance(step, dict) else {}
        arguments, skill = arguments_given(given), skill_named(given)
        spec = setup.tool(skill)
        if spec is None or not isinstance(arguments, dict):
            return []
        try:
            errors = await self._argument_errors(spec.parameters, cast("dict[str, Any]", arguments))
        except ValueError as error:
            errors = [f"the schema of {skill} cannot be used: {error}"]
        name = str(given.get("id", skill))[:40]
        return [f"{name}: arguments: {'; '.join(errors)}"[:MAX_PROBLEM_CHARS]] if errors else []


def with_planned_calls(reply: Reply, request: GoalRequest) -> Reply:
    """Return the reply with the plan's calls in their places.

    The model makes the calls of `open_places` alone. Many make all calls of the round: then the plan's take the place
    of theirs. Any other number of calls stays as it is, and the run refuses it.
    """
    planned = request.planned
    places = {len(request.open_places): request.open_places, request.size: range(request.size)}.get(len(reply.calls))
    if places is None:
        return reply
    parts, left = list[Part](), iter(places)
    for part in reply.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
        elif (place := next(left)) not in planned:
            parts += [planned.pop(at) for at in [*planned] if at < place]
            parts.append(part)
    return reply.with_differences(parts=(*parts, *planned.values()))


def _own(reply: Reply) -> GoalReply:
    return GoalReply(**{name: getattr(reply, name) for name in reply.model_fields_set})


def _models(setup: Setup) -> tuple[str, ...]:
    """Return the models of this turn, in fallback order: the activity bears its name."""
    return setup.models_for(activity.info().activity_type)
