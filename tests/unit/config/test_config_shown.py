"""`orga config show`, `agents` and `models` show effective values with their origin, and hide secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from orga.client.cli.main import run_command

Shown = pytest.CaptureFixture[str]

FILE = """\
[models]
default = "openai:gpt-6.1-terra"
base_urls.openai = "https://user:hunter2hunter2@models.example/v1"
tiers.light = ["ollama:small", "offline:extractive"]

[agents.reviewer]
model = "tier:light"
description = "Reads \\u001b[2J changes."
tools = ["read_file"]
delegates = [{ agent = "default" }]

[agents.lost]
model = "tier:heavy"
"""


@pytest.fixture(autouse=True)
def _a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    for name in ("ORGA_TRUST", "TEMPORAL_ADDRESS", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "orga.toml").write_text(FILE)


def shown_json(capsys: Shown, *arguments: str) -> Any:
    assert run_command([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def held(capsys: Shown, *arguments: str) -> dict[str, tuple[Any, str]]:
    return {each["key"]: (each["value"], each["origin"]) for each in shown_json(capsys, "config", "show", *arguments)}


def test_each_value_has_its_line_variable_or_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    monkeypatch.setenv("ORGA_TELEMETRY__ENABLED", "true")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
    found = held(capsys)
    assert found["models.default"] == ("openai:gpt-6.1-terra", f"{tmp_path}/orga.toml:2")
    assert found["agents.reviewer.tools"] == (["read_file"], f"{tmp_path}/orga.toml:9")
    assert found["telemetry.enabled"] == (True, "ORGA_TELEMETRY__ENABLED")
    assert found["temporal.address"] == ("temporal.example:7233", "TEMPORAL_ADDRESS")
    assert found["agents.default.config.max_iterations"] == (25, "default")
    assert found["tools.files.root"] == (str(tmp_path), "default: the working folder")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ("offline:extractive", "default: no key is set")),
        (
            {"ANTHROPIC_API_KEY": "sk-ant-0123456789"},
            ("anthropic:claude-sonnet-5-5", "default: ANTHROPIC_API_KEY is set"),
        ),
    ],
)
def test_the_default_model_is_shown_with_its_reason(
    env: dict[str, str], expected: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    (tmp_path / "orga.toml").unlink()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert held(capsys, "models.default") == {"models.default": expected}


def test_only_changed_values_are_shown_on_demand(capsys: Shown) -> None:
    assert set(held(capsys, "models", "--changed")) == {
        "models.default",
        "models.base_urls.openai",
        "models.tiers.light",
    }


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    monkeypatch.setenv("ORGA_NOTIFY__URL", "https://hooks.slack.example/services/T0/verysecretpath")
    monkeypatch.setenv("BILLING_TOKEN", "tok-0123456789abcdef")
    monkeypatch.setenv("ORGA_MODELS__BASE_URLS", '{"openai": "https://h.example/tok-0123456789abcdef"}')
    for arguments in (["config", "show"], ["config", "show", "--json"]):
        assert run_command(arguments) == 0
        out = capsys.readouterr().out
        assert "hooks.slack.example" in out
        for secret in ("verysecretpath", "tok-0123456789abcdef"):
            assert secret not in out
    monkeypatch.delenv("ORGA_MODELS__BASE_URLS")
    assert "hunter2" not in json.dumps(held(capsys))


def test_an_untrusted_file_is_shown_without_controlling_the_terminal(capsys: Shown) -> None:
    assert run_command(["tools", "list"]) == 2
    assert run_command(["config", "show", "agents.reviewer"]) == 0
    assert run_command(["agents"]) == 0
    assert run_command(["agents", "reviewer"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_unknown_key_gets_a_suggestion(capsys: Shown) -> None:
    assert run_command(["config", "show", "model"]) == 2
    assert "no key 'model'; did you mean 'models'?" in capsys.readouterr().err


def test_agents_are_listed_with_models_and_tools(capsys: Shown) -> None:
    found = {each["name"]: each for each in shown_json(capsys, "agents")}
    assert list(found) == ["default", "reviewer", "lost"]
    assert found["default"]["model"] == "openai:gpt-6.1-terra"
    assert found["reviewer"]["model"] == "tier:light (ollama:small, then offline:extractive)"
    assert "tier heavy has no models" in found["lost"]["model"]
    assert found["reviewer"]["tools"] == ["read_file"]
    assert run_command(["agents"]) == 0
    assert "  delegates to: default" in capsys.readouterr().out
    assert run_command(["agents", "nobody"]) == 2
    assert "there is no agent 'nobody'; there are: default, lost, reviewer" in capsys.readouterr().err


def test_models_are_listed_with_their_problems(monkeypatch: pytest.MonkeyPatch, capsys: Shown) -> None:
    assert run_command(["models", "--json"]) == 6
    found = {each["model"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["openai:gpt-6.1-terra"]["named_by"] == "default"
    assert "set OPENAI_API_KEY" in found["openai:gpt-6.1-terra"]["problem"]
    assert found["ollama:small"]["named_by"] == "tier:light"
    assert found["ollama:small"]["problem"] == ""
    assert found["offline:extractive"]["problem"] == ""
    assert "set ANTHROPIC_API_KEY" in found["anthropic:claude-sonnet-5-5"]["problem"]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert run_command(["models"]) == 0
    assert "✓ openai:gpt-6.1-terra" in capsys.readouterr().out


def test_models_are_contacted_on_demand(monkeypatch: pytest.MonkeyPatch, capsys: Shown, tmp_path: Path) -> None:
    monkeypatch.setenv("ORGA_TRUST", "1")
    (tmp_path / "orga.toml").write_text(
        '[models]\ndefault = "openai-compatible:m"\nbase_urls.openai-compatible = "http://127.0.0.1:9/v1"\n'
        'base_urls.ollama = "http://127.0.0.1:9/v1"\n'
    )
    assert run_command(["models", "--check"]) == 6
    assert "✗ openai-compatible:m" in capsys.readouterr().out


def test_the_deciding_engine_is_shown_with_its_reason(tmp_path: Path, capsys: Shown) -> None:
    assert held(capsys, "policy")["policy.engine"] == ("default", "default")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "all.cedar").write_text("permit (principal, action, resource);")
    assert held(capsys, "policy")["policy.engine"] == ("cedar", "default: policies are there")


def test_the_folder_is_shown_whatever_the_shell_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    monkeypatch.setenv("PWD", str(tmp_path))
    assert held(capsys, "tools.files")["tools.files.root"] == (str(tmp_path), "default: the working folder")
