"""Agents with critics, and the replies of their models."""

import json
from typing import Any

from orga.activities.ports import ModelRequest
from orga.client.testing.script import USAGE
from orga.testing import answers
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.critics import Critic
from orga.workflows.types.messages import Reply
from tests.support.runs.loop import Ran

RUBRIC = {"accuracy": {"weight": 0.6, "description": "each figure has a source"}, "tone": {"weight": 0.4}}


def a_critic(name: str = "quality", **fields: Any) -> Critic:
    """Return a critic of answers, with a rubric unless it is removed."""
    return Critic.model_validate({"name": name, "rubric": RUBRIC, **fields})


def a_person(name: str = "editor", **fields: Any) -> Critic:
    """Return a critic that is a person."""
    return a_critic(name, **{"rubric": {}, "person": {}, **fields})


def agents_with_critics(*critics: Critic, tools: tuple[str, ...] = ()) -> dict[str, AgentConfig]:
    """Return the default agent with these critics."""
    return {"default": AgentConfig(tools=tools, critics=critics)}


def verdict(accuracy: float = 1.0, tone: float = 1.0, feedback: str = "", *, approved: bool = True) -> Reply:
    """Return a reply of a critic's model."""
    judged = {"scores": {"accuracy": accuracy, "tone": tone}, "feedback": feedback, "approved": approved}
    return Reply.of(json.dumps(judged), usage=USAGE)


BAD = verdict(0.2, 0.9, "No source for the 17 %.")
"""The weighted score is 0.48."""

GARBAGE = answers("I like it")
"""A reply that is not a verdict."""


def is_review(request: ModelRequest) -> bool:
    """Return whether a model call is that of a critic."""
    return "scores" in (request.output_schema or {}).get("properties", {})


def evaluations(ran: Ran, *keys: str) -> list[Any]:
    """Return one value, or a tuple of values, for each critique in the journal."""
    found = [entry.data for entry in ran.journal if entry.event == "CritiqueEvaluated"]
    return [data.get(keys[0]) if len(keys) == 1 else tuple(data.get(key) for key in keys) for data in found]
