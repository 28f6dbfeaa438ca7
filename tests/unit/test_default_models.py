"""The default models are sold today: held against the tables that the providers' own libraries ship."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from anthropic.resources.messages.messages import DEPRECATED_MODELS
from anthropic.types.model import Model
from genai_prices import Usage, calc_price
from openai.types.shared.chat_model import ChatModel

from orga.activities.adapters.models.settings import DEFAULTS

MODELS = {provider: model for provider, _, model in DEFAULTS}


def names_in(alias: Any) -> set[str]:
    """Return the names that a type alias lists, whatever it is made of."""
    found = get_args(alias)
    return {alias} if isinstance(alias, str) else {name for each in found for name in names_in(each)}


def test_anthropic_lists_its_default_and_announces_no_end_of_it() -> None:
    assert MODELS["anthropic"] in names_in(Model)
    assert MODELS["anthropic"] not in DEPRECATED_MODELS


def test_openai_lists_its_default() -> None:
    assert MODELS["openai"] in names_in(ChatModel)


def test_the_router_is_asked_for_a_model_that_its_maker_still_sells() -> None:
    """Routers write versions with a dot."""
    maker, _, model = MODELS["openrouter"].partition("/")
    assert maker == "anthropic"
    assert model.replace(".", "-") in names_in(Model) - set(DEPRECATED_MODELS)


@pytest.mark.parametrize(("provider", "model"), MODELS.items())
def test_a_default_has_a_price(provider: str, model: str) -> None:
    used = Usage(input_tokens=1_000, output_tokens=1_000)
    assert calc_price(used, model, provider_id=provider, genai_request_timestamp=datetime.now(UTC)).total_price > 0
