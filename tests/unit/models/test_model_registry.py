"""Model names are resolved to providers, or to an error that shows the remedy."""

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.registry import ModelNotConfigured, ModelRegistry, default_model
from orga.workflows.types.models.providers import PROVIDERS
from tests.support.model.providers import (
    Network,
    a_request,
    text_response,
)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, "offline:extractive", id="no key"),
        pytest.param({"OPENAI_API_KEY": " "}, "offline:extractive", id="a blank key is none"),
        pytest.param({"OPENROUTER_API_KEY": "k"}, "openrouter:anthropic/claude-sonnet-5.5", id="OpenRouter"),
        pytest.param({"OPENAI_API_KEY": "k"}, "openai:gpt-6.1-terra", id="OpenAI"),
        pytest.param({"ANTHROPIC_API_KEY": "k"}, "anthropic:claude-sonnet-5-5", id="Anthropic"),
        pytest.param({"OPENAI_API_KEY": "k", "CHAT_MODEL": "gpt-5"}, "openai:gpt-5", id="the model is named"),
        pytest.param(
            {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "claude-opus-5-5", "CHAT_MODEL": "gpt-5"},
            "anthropic:claude-opus-5-5",
            id="a model of another provider is ignored",
        ),
        pytest.param(
            {"OPENROUTER_API_KEY": "k", "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENROUTER_MODEL": "x/y"},
            "openrouter:x/y",
            id="OpenRouter comes first",
        ),
        pytest.param(
            {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "openai:gpt-6.1-terra", id="OpenAI comes first"
        ),
    ],
)
def test_the_default_model_follows_the_configured_key(env: dict[str, str], expected: str) -> None:
    assert default_model(env) == expected


def greeting_network(name: str) -> Network:
    """Return a network that greets. The native API of Ollama, which is asked first, is absent."""
    return Network([*([http.Response(404)] if name.startswith("ollama:") else []), greeting(name)])


def greeting(name: str) -> http.Response:
    """Return a reply in the protocol of the model's provider."""
    return text_response(PROVIDERS[name.partition(":")[0]].api)


@pytest.mark.parametrize(
    ("name", "env", "base_urls", "url"),
    [
        ("openai:gpt-4o", {}, {}, "https://api.openai.com/v1/responses"),
        ("openai:m", {"OPENAI_BASE_URL": "http://gw:1/x/"}, {}, "http://gw:1/x/responses"),
        ("openai:m", {"OPENAI_BASE_URL": "http://a/v1"}, {"openai": "http://b/v1"}, "http://b/v1/responses"),
        ("openrouter:a/b", {}, {}, "https://openrouter.ai/api/v1/chat/completions"),
        ("anthropic:m", {}, {}, "https://api.anthropic.com/v1/messages"),
        ("anthropic:m", {"ANTHROPIC_BASE_URL": "http://gw"}, {}, "http://gw/v1/messages"),
        ("anthropic:m", {"ANTHROPIC_BASE_URL": "http://gw/v1/"}, {}, "http://gw/v1/messages"),
        ("ollama:llama3:8b", {}, {}, "http://127.0.0.1:11434/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "0.0.0.0"}, {}, "http://127.0.0.1:11434/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "gpu:9999"}, {}, "http://gpu:9999/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": ":9999"}, {}, "http://127.0.0.1:9999/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "[::1]:9999"}, {}, "http://[::1]:9999/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "https://gpu/ollama/"}, {}, "https://gpu/ollama/v1/chat/completions"),
        ("openai-compatible:m", {}, {"openai-compatible": "http://b/v1"}, "http://b/v1/chat/completions"),
        ("openai-compatible:m", {"OPENAI_COMPATIBLE_BASE_URL": "http://c"}, {}, "http://c/chat/completions"),
    ],
)
async def test_each_model_is_requested_at_its_address(
    name: str, env: dict[str, str], base_urls: dict[str, str], url: str
) -> None:
    keys = dict.fromkeys(("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY"), "key")
    network = greeting_network(name)
    registry = ModelRegistry(keys | env, base_urls, http.MockTransport(network))
    provider, model = registry.resolve(name)
    reply = await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert reply.text == "hi"
    assert str(network.requests[-1].url) == url
    assert model == name.partition(":")[2]


@pytest.mark.parametrize(
    ("name", "env", "headers"),
    [
        pytest.param("openai:m", {"OPENAI_API_KEY": " k\n"}, {"authorization": "Bearer k"}, id="bearer, trimmed"),
        pytest.param(
            "anthropic:m",
            {"ANTHROPIC_API_KEY": "k"},
            {"x-api-key": "k", "anthropic-version": "2026-10-21", "authorization": None},
            id="Anthropic",
        ),
        pytest.param(
            "openrouter:m",
            {"OPENROUTER_API_KEY": "k", "OPENROUTER_REFERER": "https://me", "OPENROUTER_TITLE": "Me"},
            {"http-referer": "https://me", "x-title": "Me"},
            id="OpenRouter's own",
        ),
        pytest.param("openrouter:m", {"OPENROUTER_API_KEY": "k"}, {"http-referer": None, "x-title": None}, id="absent"),
        pytest.param("ollama:m", {}, {"authorization": None}, id="no key needed"),
        pytest.param(
            "openai-compatible:m",
            {"OPENAI_COMPATIBLE_BASE_URL": "http://c", "OPENAI_COMPATIBLE_API_KEY": "k"},
            {"authorization": "Bearer k"},
            id="an optional key",
        ),
    ],
)
async def test_requests_carry_the_right_identification_headers(
    name: str, env: dict[str, str], headers: dict[str, str | None]
) -> None:
    network = greeting_network(name)
    registry = ModelRegistry(env, {}, http.MockTransport(network))
    provider, model = registry.resolve(name)
    await provider.complete(a_request(model=model), lambda text: None)
    await registry.close()
    assert {name: network.requests[-1].headers.get(name) for name in headers} == headers


@pytest.mark.parametrize(
    ("name", "env", "words"),
    [
        pytest.param("gpt-4o", {}, "provider:model", id="no provider"),
        pytest.param("mistral:large", {}, "openrouter, openai, anthropic, ollama, openai-compatible, bedrock, gemini, "
                     "vertex, local, offline", id="an unknown provider"),
        pytest.param("openai:", {"OPENAI_API_KEY": "k"}, "provider:model", id="no model"),
        pytest.param("openai:gpt-4o", {}, "set OPENAI_API_KEY", id="no OpenAI key"),
        pytest.param("anthropic:claude", {"OPENAI_API_KEY": "k"}, "set ANTHROPIC_API_KEY", id="another's key"),
        pytest.param("openai:m", {"OPENAI_API_KEY": "sk-“smart”"}, "OPENAI_API_KEY", id="a key with smart quotes"),
        pytest.param("openai-compatible:m", {}, "OPENAI_COMPATIBLE_BASE_URL", id="no address"),
        pytest.param("openai:m", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "localhost:1"}, "OPENAI_BASE_URL",
                     id="an address without scheme"),
        pytest.param("ollama:m", {"OLLAMA_HOST": "gpu:port"}, "OLLAMA_HOST", id="an invalid port"),
        pytest.param("offline:gpt", {}, "offline:extractive", id="an unknown offline model"),
    ],
)  # fmt: skip
def test_an_unusable_model_is_reported_with_the_remedy(name: str, env: dict[str, str], words: str) -> None:
    with pytest.raises(ModelNotConfigured) as caught:
        ModelRegistry(env).resolve(name)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert not any(key in text for key in env.values() if key.startswith("sk-"))


async def test_one_provider_object_serves_all_its_models() -> None:
    registry = ModelRegistry({"OPENAI_API_KEY": "k"})
    assert registry.resolve("openai:a")[0] is registry.resolve("openai:b")[0]
    await registry.close()


def test_the_offline_reader_needs_no_configuration() -> None:
    provider, model = ModelRegistry({}).resolve("offline:extractive")
    assert (type(provider).__name__, model) == ("TextOnlyProvider", "extractive")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1", True),
        ("http://[::1]/v1", True),
        ("http://gpu", False),
        ("http://10.0.0.1", False),
        ("nonsense", False),
    ],
)
def test_a_loopback_server_is_never_reached_through_a_proxy(
    url: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.is_loopback(url) == expected
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:1")
    client = http.http_client(url)
    assert bool([mount for mount in client._mounts.values() if mount is not None]) == (not expected)


def test_an_invalid_proxy_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://me:secret@proxy")
    with pytest.raises(ModelNotConfigured, match="proxy") as caught:
        ModelRegistry({"OPENAI_API_KEY": "k"}).resolve("openai:m")
    assert "secret" not in str(caught.value)
