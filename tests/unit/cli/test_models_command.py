"""`orga models` shows what each model is and lacks, and `orga models try` asks one for a tool call."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from orga.client.cli.main import run_command
from tests.support.model.chat_server import Calls, ChatServer, Says, chat_server
from tests.support.web.serving import serving

Shown = pytest.CaptureFixture[str]

KEY = "sk-0123456789-abcdef"


@pytest.fixture(autouse=True)
def _a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    keys = [f"{name}_API_KEY" for name in ("OPENAI", "OPENROUTER", "ANTHROPIC", "OLLAMA")]
    for name in (*keys, "OLLAMA_HOST", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server(Calls("read_file", {"path": "README.md"})) as server:
        yield server


def listed(capsys: Shown, *arguments: str) -> dict[str, Any]:
    run_command(["models", *arguments, "--json"])
    return {each["model"]: each for each in json.loads(capsys.readouterr().out)}


def tried(capsys: Shown, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = run_command(["models", "try", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_each_model_has_its_key_price_window_and_levels(monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found = listed(capsys)
    openai, anthropic = found["openai:gpt-6.1-terra"], found["anthropic:claude-sonnet-5-5"]
    assert (openai["key"], openai["is_key_set"], openai["named_by"]) == ("OPENAI_API_KEY", True, "default")
    assert (anthropic["key"], anthropic["is_key_set"]) == ("ANTHROPIC_API_KEY", False)
    assert (openai["takes_thinking_tokens"], anthropic["takes_thinking_tokens"]) == (False, True)
    assert openai["efforts"] == ["none", "low", "medium", "high", "max"]
    assert 0 < openai["input_price"] < openai["output_price"]
    assert openai["context_window"] > 100_000
    assert found["ollama:NAME"]["calls_tools"] is None


def test_prices_and_tiers_of_the_configuration_are_shown(tmp_path: Path, capsys: Shown) -> None:
    (tmp_path / "orga.toml").write_text(
        '[models]\ndefault = "ollama:big"\ntiers.heavy = ["ollama:big"]\n'
        'prices."ollama:big" = { input = 1.5, output = 3 }\n'
    )
    assert run_command(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["✓", "ollama:big", "default,", "tier:heavy"]
    assert "USD 1.5 in, 3 out for a million tokens" in lines[1]
    assert "OLLAMA_API_KEY is optional" in lines[1]


def test_a_provider_lists_only_its_models(capsys: Shown) -> None:
    assert list(listed(capsys, "ollama")) == ["ollama:NAME"]
    assert list(listed(capsys, "list", "local")) == ["local:smollm2"]


@pytest.mark.parametrize("given", [["olama"], ["try", "olama:qwen3"]])
def test_an_unknown_provider_gets_a_suggestion(given: list[str], capsys: Shown) -> None:
    assert run_command(["models", *given]) == 2
    assert "did you mean 'ollama'?" in capsys.readouterr().err


def test_the_help_shows_both_commands(capsys: Shown) -> None:
    assert run_command(["models", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "list " in shown
    assert "try " in shown


def test_a_model_that_calls_the_tool_works(monkeypatch: pytest.MonkeyPatch, chat: ChatServer, capsys: Shown) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", chat.url)
    code, [found] = tried(capsys, "openai-compatible:m")
    assert (code, found["called"], found["problem"]) == (0, ["read_file"], "")
    assert found["seconds"] > 0
    assert found["input_tokens"] > 0
    assert found["cost_usd"] is None
    assert [each["function"]["name"] for each in chat.requests[0]["tools"]] == ["read_file"]
    assert run_command(["models", "try", "openai-compatible:m"]) == 0
    assert "cost unknown" in capsys.readouterr().out


def test_the_price_of_the_configuration_gives_the_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: ChatServer, capsys: Shown
) -> None:
    (tmp_path / "orga.toml").write_text('[models.prices]\n"openai-compatible:m" = { input = 10, output = 10 }\n')
    monkeypatch.setenv("ORGA_TRUST", "1")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", chat.url)
    _, [found] = tried(capsys, "openai-compatible:m")
    assert found["cost_usd"] == pytest.approx((found["input_tokens"] + found["output_tokens"]) / 100_000)


def test_an_endpoint_of_the_configuration_is_listed_and_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: ChatServer, capsys: Shown
) -> None:
    settings = f"""
[models.endpoints.house]
api = "chat"
base_url = "{chat.url}"
key_from = "HOUSE_PASS"
context_window = 9_000
price = {{ input = 10, output = 20 }}
lacks = ["effort"]

[agents.default]
model = "house:m"
"""
    (tmp_path / "orga.toml").write_text(settings)
    monkeypatch.setenv("ORGA_TRUST", "1")
    monkeypatch.setenv("HOUSE_PASS", KEY)
    shown = listed(capsys, "house")
    assert list(shown) == ["house:m", "house:NAME"]
    facts = shown["house:m"]
    assert (facts["key"], facts["is_key_set"], facts["is_key_needed"]) == ("HOUSE_PASS", True, True)
    assert (facts["context_window"], facts["input_price"], facts["efforts"]) == (9_000, 10, [])
    code, [found] = tried(capsys, "house:m")
    assert (code, found["called"], found["cost_usd"] > 0) == (0, ["read_file"], True)
    assert f"Bearer {KEY}" in chat.headers[0]
    (tmp_path / "orga.toml").write_text(settings.replace(chat.url, "http://127.0.0.1:9/v1"))
    code, [found] = tried(capsys, "house:m")
    assert (code, found["remedy"]) == (
        1,
        "start the server, or correct its address: [models.endpoints.house] base_url",
    )


def test_every_model_of_a_tier_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: ChatServer, capsys: Shown
) -> None:
    (tmp_path / "orga.toml").write_text('[models.tiers]\nlight = ["openai-compatible:a", "openai:b"]\n')
    monkeypatch.setenv("ORGA_TRUST", "1")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", chat.url)
    code, found = tried(capsys, "tier:light")
    assert code == 1
    assert [(each["model"], bool(each["problem"])) for each in found] == [
        ("openai-compatible:a", False),
        ("openai:b", True),
    ]
    assert run_command(["models", "try", "tier:heavy"]) == 2
    assert "tier heavy has no models" in capsys.readouterr().err


def test_a_missing_key_has_its_remedy(capsys: Shown) -> None:
    code, [found] = tried(capsys, "anthropic:claude-sonnet-5-5")
    assert (code, found["problem"]) == (1, "anthropic has no key")
    assert found["remedy"] == "set ANTHROPIC_API_KEY, or choose another model"


def test_an_absent_local_server_has_its_remedy(monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    assert run_command(["models", "try", "ollama:qwen3"]) == 1
    problem, remedy = capsys.readouterr().out.splitlines()
    assert problem.startswith("✗ ollama:qwen3: ConnectionFailed: ollama can't be reached at http://127.0.0.1:9/v1")
    assert remedy == "    → start it: ollama serve; or correct its address: OLLAMA_HOST or [models] base_urls"


@pytest.mark.parametrize(("text", "shown"), [("I cannot.", "I cannot."), ("", "stop")])
def test_an_answer_without_a_call_is_a_failure(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    with chat_server(Says([text])) as chat:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", chat.url)
        code, [found] = tried(capsys, "openai-compatible:m")
    assert (code, found["problem"]) == (1, f"it answered, and did not call the tool: {shown}")
    assert "a model that calls tools" in found["remedy"]


@pytest.mark.parametrize(
    ("status", "message", "kind", "remedy"),
    [
        pytest.param(401, f"Incorrect API key: {KEY}", "AuthenticationFailed", "set OPENAI_API_KEY", id="wrong key"),
        pytest.param(404, "The model 'm' does not exist", "ModelNotFound", "correct the name", id="no such model"),
        pytest.param(402, "Insufficient credits", "OutOfQuota", "add credit at openai", id="no credit"),
    ],
)
def test_a_refusal_has_its_remedy_and_hides_the_key(
    status: int, message: str, kind: str, remedy: str, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answer = json.dumps({"error": {"message": message}}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(Refuses) as port:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
        code, [found] = tried(capsys, "openai:m")
    assert code == 1
    assert found["problem"].startswith(kind)
    assert found["remedy"].startswith(remedy)
    assert KEY not in json.dumps(found)


def test_a_model_given_in_code_cannot_be_tried_here(capsys: Shown) -> None:
    assert run_command(["models", "try", "code:mine"]) == 2
    assert "exists only in the worker" in capsys.readouterr().err
