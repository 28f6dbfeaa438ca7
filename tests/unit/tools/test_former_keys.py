"""Keys of earlier systems are refused with their present name, in every kind of input."""

from typing import Any

import pytest

from orga.client.config.problems import unknown_key_remedy
from orga.workflows.types.goals.goal_input import GoalConfig, parse_goal
from orga.workflows.types.input import parse_input
from orga.workflows.types.record import InvalidInput


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"skill_whitelist": ["read_file"]}, "skill_whitelist: unknown key (did you mean 'skills'?)"),
        ({"config": {"skill_whitelist": []}}, "(it is 'skills' of a goal's input, or 'tools' of its agent)"),
        ({"config": {"done_confidence_threshold": 0.8}}, "(did you mean 'done_confidence'?)"),
        ({"config": {"step_timeout_seconds": 60}}, "(did you mean 'step_timeout_s'?)"),
        ({"config": {"time_budget_ms": 60_000}}, "(did you mean 'timeout_s'?)"),
        ({"config": {"llm_tier": "local"}}, "'model': 'tier:NAME' of the input, or [goals.tiers] of orga.toml"),
        ({"default_delivery": ["memory"]}, "default_delivery: unknown key (did you mean 'deliver'?)"),
        ({"config": {"default_delivery": []}}, "'deliver' of a goal's input, or 'default' of [goals.deliveries.NAME]"),
        ({"config": {"enabled": True}}, "config.enabled: unknown key (leave it out: a goal runs only if"),
        ({"config": {"max_reattempts_per_step": 3}}, "(it is 'step_iteration.max_reattempts' of the config)"),
        ({"config": {"reasoning.max_llm_calls": 3}}, "(did you mean 'max_llm_calls'?)"),
        ({"config": {"max_iteration": 3}}, "(did you mean 'max_iterations'?)"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_former_key_of_a_goal_is_refused_with_its_present_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as reported:
        parse_goal({"goal": "g", **given})
    assert says in str(reported.value)


def test_a_former_key_of_an_agent_run_is_refused_with_its_present_name() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'max_reattempts'"):
        parse_input({"task": "t", "config": {"step_iteration": {"max_reattempts_per_step": 3}}})


@pytest.mark.parametrize(
    ("key", "known", "says"),
    [
        ("llm_tier", ["tiers", "deliveries"], "did you mean 'tiers'? allowed: tiers, deliveries"),
        ("reasoning", ["goals", "agents"], "did you mean 'goals'? allowed"),
        ("enabled", ["enable_all"], "leave it out: a goal runs only if somebody starts it; allowed: enable_all"),
        ("done_confidence_threshold", list(GoalConfig.model_fields), "did you mean 'done_confidence'? allowed"),
        ("nothing_alike", ["tiers"], "allowed: tiers"),
    ],
)
def test_a_former_key_of_the_configuration_is_refused_with_its_present_name(
    key: str, known: list[str], says: str
) -> None:
    assert unknown_key_remedy(key, known).startswith(says)
