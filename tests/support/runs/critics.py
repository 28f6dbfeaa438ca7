"""Agents with critics, and what their models say."""

import json
from typing import Any

from orga.activities.ports import ModelRequest
from orga.client.testing.script import USAGE
from orga.testing import answers
from orga.workflows.types.agents import AgentConfig, Critic
from orga.workflows.types.messages import Reply
from tests.support.runs.loop import Ran

RUBRIC = {"accuracy": {"weight": 0.6, "description": "each figure has a source"}, "tone": {"weight": 0.4}}


def a_critic(name: str = "quality", **fields: Any) -> Critic:
    """Return a critic of answers, with a rubric unless it is taken away."""
    return Critic.model_validate({"name": name, "rubric": RUBRIC, **fields})


def a_person(name: str = "editor", **fields: Any) -> Critic:
    """Return a critic that is a person."""
    return a_critic(name, **{"rubric": {}, "person": {}, **fields})


def agents_with_critics(*critics: Critic, tools: tuple[str, ...] = ()) -> dict[str, AgentConfig]:
    """Return the default agent with these critics."""
    return {"default": AgentConfig(tools=tools, critics=critics)}


def verdict(accuracy: float = 1.0, tone: float = 1.0, feedback: str = "", *, approved: bool = True) -> Reply:
    """Return what a critic's model says."""
    said = {"scores": {"accuracy": accuracy, "tone": tone}, "feedback": feedback, "approved": approved}
    return Reply.of(json.dumps(said), usage=USAGE)


BAD = verdict(0.2, 0.9, "No source for the 17 %.")
"""0.48 by the weights."""

GARBAGE = answers("I like it")
"""No verdict."""


def is_review(request: ModelRequest) -> bool:
    """Return whether a model call is a critic's."""
    return "scores" in (request.output_schema or {}).get("properties", {})


def evaluations(ran: Ran, *keys: str) -> list[Any]:
    """Return what the journal tells of the critics: one value for each verdict, or a tuple of values."""
    found = [entry.data for entry in ran.journal if entry.event == "CritiqueEvaluated"]
    return [data.get(keys[0]) if len(keys) == 1 else tuple(data.get(key) for key in keys) for data in found]
