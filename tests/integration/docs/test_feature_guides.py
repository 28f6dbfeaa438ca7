"""The Python of the guides runs as printed there."""

import re
from typing import Any

import pytest

from orga import ToolContext
from orga.client.workers.in_code import as_tool
from tests.support.programs.orga_command import ROOT, an_orga


def python_of(document: str) -> list[str]:
    """Return the Python blocks of a guide."""
    found = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / document).read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found


async def test_the_guide_of_structured_output(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("project")
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    orga = an_orga(folder, tmp_path_factory.mktemp("home"))
    monkeypatch.setenv("ORGA_HOME", orga.env["ORGA_HOME"])
    monkeypatch.chdir(folder)
    with orga.started("worker") as worker:
        worker.line("polls task queue")
        for block in python_of("structured-output.md"):
            await run_example(block)
    orga("server", "--stop")
    in_json, as_type = capsys.readouterr().out.split("answer=")
    assert ("max_attempts" in in_json, "max_attempts" in as_type) == (True, True)


async def run_example(block: str) -> None:
    """Run a Python block of a guide, which uses await."""
    body = "".join(f"    {line}\n" for line in block.splitlines())
    namespace: dict[str, object] = {}
    exec(f"async def example():\n{body}", namespace)
    await namespace["example"]()  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues]


async def test_the_guide_of_settings(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("project")
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    orga = an_orga(folder, tmp_path_factory.mktemp("home"))
    monkeypatch.setenv("ORGA_HOME", orga.env["ORGA_HOME"])
    monkeypatch.chdir(folder)
    guide = (ROOT / "docs" / "settings.md").read_text()
    command = re.search(r"^```sh\norga (.*?)\n```\n\n```\n(.*?)\n```", guide, re.DOTALL | re.MULTILINE)
    assert command
    with orga.started("worker") as worker:
        worker.line("polls task queue")
        await run_example(python_of("settings.md")[0])
        shown = orga(*command[1].split())
        checked = orga("doctor")
        orga("run", "How are retries configured?", "--id", "r")
        journal = orga("journal", "r", "--json")
    orga("server", "--stop")

    assert "saved version 1" in capsys.readouterr().out
    assert (shown.out.strip(), shown.code) == (command[2], 0), shown.err
    assert "settings: version 1 of the settings at run time, 2 keys" in checked.out, checked.out
    assert '"settings_version": 1' in journal.out
    assert "run time" not in orga(*command[1].split()).out


def test_the_guide_of_tool_profiles() -> None:
    namespace: dict[str, object] = {}
    exec(python_of("tool-profiles.md")[0], namespace)
    config = namespace["run_input"]["config"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
    assert config["tool_profile"]["include"] == ("read_*", "search_*")


async def test_the_methods_of_an_object_are_tools() -> None:
    namespace: dict[str, Any] = {"__name__": "warehouse"}
    exec(next(block for block in python_of("your-own-tools.md") if "class Warehouse" in block), namespace)
    [tool] = map(as_tool, namespace["tools"])
    assert list(tool.spec.parameters["properties"]) == ["item"]
    answer = await tool.call({"item": "lamp"}, ToolContext("c1", "key"))
    assert answer.content == "3"
