"""The example of the guide for blocking tools: its functions and its configuration, as a worker reads them."""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.client.config.file import load_config
from orga.client.workers.parts import configured_tools
from tests.support.programs.orga_command import ROOT
from tests.support.tools.calls import result

GUIDE = (ROOT / "docs" / "blocking-tools.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToolCatalog]:
    (tmp_path / "mytools.py").write_text(block("python"))
    (tmp_path / "orga.toml").write_text(block("toml"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield configured_tools(load_config(tmp_path / "orga.toml"), tmp_path, {})
    sys.modules.pop("mytools")


def test_the_options_match_the_guide(tools: ToolCatalog) -> None:
    options = {name: tools[name].spec.options for name in ("stretched_key", "parse_report", "read_file")}
    assert (options["stretched_key"].isolation, options["stretched_key"].timeout_s) == ("process", 120)
    assert (options["parse_report"].isolation, options["parse_report"].timeout_s) == ("process", 10)
    assert (options["read_file"].execution, options["read_file"].timeout_s) == ("local", 2)


async def test_the_functions_run(tools: ToolCatalog) -> None:
    expected = hashlib.pbkdf2_hmac("sha256", b"a", b"salt", 3).hex()
    assert await result(tools["stretched_key"], text="a", rounds=3) == expected
    assert await result(tools["parse_report"], text="finding: one") == "1"
