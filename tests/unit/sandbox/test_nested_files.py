"""Files with endless nesting are refused with a reason by every reader."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.conventions.changes import ConventionTarget, convention_items
from orga.activities.adapters.knowledge.project_files import UnreadableFile
from orga.activities.adapters.toml_text import MAX_DEPTH, TomlTooDeep, read_toml
from orga.client.config.file import load_config, read_config
from orga.client.config.manifests import read_manifests
from orga.client.errors import ConfigError
from orga.client.policies.cases import BadCases, read_cases
from orga.client.server.home import UnreadableTable, read_table
from orga.workflows.types.knowledge import Reader

MANIFEST = 'name = "x"\ndescription = "y"\n'
QUOTE = r'"\""'
CASE = '[[test]]\nname = "x"\ntool = "y"\n'


def dotted(depth: int, part: str = "a") -> str:
    return ".".join([part] * depth)


FORMS: dict[str, Callable[[int], str]] = {
    "a header": lambda depth: f"[{dotted(depth)}]\n",
    "a header of quoted parts": lambda depth: f"[{dotted(depth, QUOTE)}]\n",
    "a header with spaces": lambda depth: f"[ {dotted(depth).replace('.', ' . ')} ]\n",
    "a header of a list": lambda depth: f"[[{dotted(depth)}]]\n",
    "a key": lambda depth: f"{dotted(depth)} = 1\n",
    "a key of a known section": lambda depth: f"agents.default.decisions.{dotted(depth)} = 1\n",
    "tables in lines": lambda depth: f"a = {'{a = ' * depth}1{'}' * depth}\n",
    "lists": lambda depth: f"a = {'[' * depth}{']' * depth}\n",
    "both": lambda depth: f"a = {'[{a = ' * depth}1{'}]' * depth}\n",
}


@pytest.mark.parametrize("depth", [MAX_DEPTH, 900, 3_000, 30_000])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_too_deeply_nested_toml_is_refused_by_every_reader(
    tmp_path: Path, form: Callable[[int], str], depth: int
) -> None:
    text = form(depth)
    began = time.process_time()
    with pytest.raises(TomlTooDeep, match="nested too deeply, in more than 100 levels"):
        read_toml(text)
    for name, content in (("orga.toml", text), ("x.toml", MANIFEST + text), ("x.test.toml", CASE + text)):
        (tmp_path / name).write_text(content)
    for read in (load_config, read_config):
        with pytest.raises(ConfigError, match=r"orga\.toml: its values are nested too deeply"):
            read(folder=tmp_path, env={})
    _, [problem] = read_manifests([tmp_path / "x.toml"])
    assert "nested too deeply" in str(problem)
    with pytest.raises(BadCases, match="nested too deeply"):
        read_cases(tmp_path / "x.test.toml")
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UnreadableFile, match="nested too deeply"):
        convention_items(tmp_path, "pyproject.toml", ConventionTarget("shop", "", "tenant", Reader()))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"[{dotted(MAX_DEPTH - 2)}]\n", id="a header"),
        pytest.param(f'a = "{dotted(3_000, "1")}"\n'.replace("1.1.", "1..1"), id="a text of dots"),
        pytest.param(f"a = 1 # {'.' * 3_000}\n", id="a comment"),
        pytest.param('[a."b.c".d]\ne = 1.5\n', id="dots in a part"),
        pytest.param(f"a = [{'[1],' * 3_000}]\n", id="many lists side by side"),
    ],
)
def test_toml_with_little_nesting_is_read(text: str) -> None:
    assert read_toml(text)


@pytest.mark.parametrize("name", ["package.json", "tsconfig.json"])
def test_too_deeply_nested_json_of_a_project_is_refused(tmp_path: Path, name: str) -> None:
    for depth in (1_000, 3_000, 100_000):
        (tmp_path / name).write_text(f'{{"scripts": {"[" * depth}{"]" * depth}}}')
        with pytest.raises(UnreadableFile, match="nested too deeply"):
            convention_items(tmp_path, name, ConventionTarget("shop", "", "tenant", Reader()))


def test_a_too_deeply_nested_table_of_our_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "trust.json").write_text("[" * 100_000)
    with pytest.raises(UnreadableTable, match=r"trust\.json: cannot be read"):
        read_table(tmp_path / "trust.json")


def test_the_list_of_problems_of_a_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text("".join(f"a{number} = 1\n" for number in range(5_000)))
    with pytest.raises(ConfigError) as raised:
        load_config(folder=tmp_path, env={"ORGA_TRUST": "1"})
    first, *_, last = lines = str(raised.value).splitlines()
    assert (len(lines), ":1: a0: unknown key" in first, last) == (21, True, "and 4980 more problems")
