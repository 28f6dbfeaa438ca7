"""Every name of `import orga` exists, and nothing is loaded before its first use."""

import subprocess
import sys

import pytest

import orga


@pytest.mark.parametrize("name", orga.__all__)
def test_each_name_exists(name: str) -> None:
    named = getattr(orga, name).__name__
    assert named.removeprefix("orga.") == name, "a loaded worker module must not replace `orga.worker`"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'AgentOutput'"):
        getattr(orga, "AgentOutput")  # noqa: B009


def test_all_names_are_listed() -> None:
    assert dir(orga) == sorted(orga.__all__)


def test_nothing_is_loaded_before_its_first_use() -> None:
    loaded = "import sys; before = {*sys.modules}; import orga; print(sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['orga']"
