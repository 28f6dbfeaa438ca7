"""What stands in the way of a limit in US dollars: a model whose price nobody knows."""

from collections.abc import Callable, Sequence

from orga.workflows.types.critics import Critic
from orga.workflows.types.input import LoopConfig


def cost_refusal(config: LoopConfig, model: str, critics: Sequence[Critic], is_priced: Callable[[str], bool]) -> str:
    """Return why `max_cost_usd` could not hold for the models of a run, or ""."""
    if config.max_cost_usd is None:
        return ""
    asked = [model, *(critic.model for critic in critics if critic.rubric and critic.model)]
    unknown = [name for name in dict.fromkeys(asked) if not is_priced(name)]
    if not unknown:
        return ""
    return (
        f"config.max_cost_usd: the price of {', '.join(unknown)} is not known, so it would limit nothing;"
        f' state it as [models.prices."{unknown[0]}"], or set [models] unpriced = "allow"'
    )
