"""The Python of the guides runs as it stands there."""

import re

import pytest

from tests.support.programs.orga_command import ROOT, an_orga


def python_of(document: str) -> str:
    """Return the first Python block of a guide."""
    found = re.search(r"^```python\n(.*?)^```", (ROOT / "docs" / document).read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


async def test_the_guide_of_structured_output(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("project")
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    orga = an_orga(folder, tmp_path_factory.mktemp("home"))
    monkeypatch.setenv("ORGA_HOME", orga.env["ORGA_HOME"])
    monkeypatch.chdir(folder)
    body = "".join(f"    {line}\n" for line in python_of("structured-output.md").splitlines())
    namespace: dict[str, object] = {}
    exec(f"async def example():\n{body}", namespace)
    with orga.started("worker") as worker:
        worker.line("polls task queue")
        await namespace["example"]()  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues]
    orga("server", "--stop")
    assert "max_attempts" in capsys.readouterr().out


def test_the_guide_of_tool_profiles() -> None:
    namespace: dict[str, object] = {}
    exec(python_of("tool-profiles.md"), namespace)
    config = namespace["run_input"]["config"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
    assert config["tool_profile"]["include"] == ("read_*", "search_*")
