"""`orga.toml` and the environment: which files are found, which setting wins, and the messages about mistakes."""

from pathlib import Path
from typing import Any

import pytest

from orga.client.config.file import ConfigError, config_above, line_of, load_config
from orga.client.config.trust.check import Untrusted


def written(folder: Path, text: str) -> Path:
    path = folder / "orga.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_the_defaults_are_used(tmp_path: Path) -> None:
    config = load_config(folder=tmp_path, env={})
    assert config.file is None
    assert config.temporal.task_queue is None


def test_the_file_is_found_in_a_parent_folder(tmp_path: Path) -> None:
    path = written(tmp_path, '[temporal]\ntask_queue = "q"\n')
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    config = load_config(folder=deep, env={})
    assert (config.file, config.temporal.task_queue) == (path, "q")


def test_the_option_precedes_the_variable_and_the_variable_the_search(tmp_path: Path) -> None:
    written(tmp_path, '[temporal]\ntask_queue = "found"\n')
    for name in ("named", "variable"):
        (tmp_path / f"{name}.toml").write_text(f'[temporal]\ntask_queue = "{name}"\n')
    env = {"ORGA_CONFIG": "variable.toml"}
    assert load_config(folder=tmp_path, env=env).temporal.task_queue == "variable"
    named = load_config(Path("named.toml"), folder=tmp_path, env=env)
    assert named.temporal.task_queue == "named"


@pytest.mark.parametrize(
    ("variable", "value", "key", "expected"),
    [
        pytest.param("ORGA_TEMPORAL__ADDRESS", "h:1", "temporal.address", "h:1", id="text"),
        pytest.param(
            "ORGA_AGENTS__Main__CONFIG__MAX_ITERATIONS", "7", "agents.Main.config.max_iterations", 7, id="int"
        ),
        pytest.param("ORGA_AGENTS__MAIN__TOOLS", "a, b", "agents.Main.tools", ("a", "b"), id="list with commas"),
        pytest.param("ORGA_AGENTS__MAIN__TOOLS", '["a"]', "agents.Main.tools", ("a",), id="list as JSON"),
        pytest.param("ORGA_AGENTS__MAIN__TOOLS", "", "agents.Main.tools", (), id="empty list"),
        pytest.param("ORGA_AGENTS__MAIN__INSTRUCTIONS", "[x", "agents.Main.instructions", "[x", id="text like a list"),
        pytest.param("ORGA_AGENTS__MAIN__MODEL", "null", "agents.Main.model", None, id="null"),
        pytest.param("ORGA_AGENTS__OTHER__MODEL", "a:b", "agents.other.model", "a:b", id="a new agent"),
        pytest.param("ORGA_TELEMETRY__ENABLED", "true", "telemetry.enabled", True, id="boolean"),
        pytest.param("ORGA_MODELS__BASE_URLS", '{"ollama": "u"}', "models.base_urls", {"ollama": "u"}, id="table"),
        pytest.param(
            "ORGA_TOOLS__OPTIONS__READ_FILE__TIMEOUT_S", "3", "tools.options.read_file.timeout_s", 3, id="deep"
        ),
    ],
)
def test_the_environment_precedes_the_file(
    tmp_path: Path, variable: str, value: str, key: str, expected: object
) -> None:
    written(tmp_path, '[temporal]\naddress = "f:2"\n[agents.Main]\nmodel = "m:n"\ntools = ["c"]\n')
    found: Any = load_config(folder=tmp_path, env={"ORGA_TRUST": "1", variable: value}).model_dump()
    for part in key.split("."):
        found = found[part]
    assert found == expected


def test_other_variables_of_orga_are_no_settings(tmp_path: Path) -> None:
    load_config(folder=tmp_path, env={"ORGA_HOME": "x", "ORGA_DEBUG": "1", "ORGA_TEMPORAL_CLI": "y"})


def test_a_relative_root_is_relative_to_the_file(tmp_path: Path) -> None:
    written(tmp_path, '[tools.files]\nroot = "docs"\n')
    deep = tmp_path / "a"
    deep.mkdir()
    assert load_config(folder=deep, env={}).tools.files.root == tmp_path / "docs"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("[temporal]\nadress = 'x'", 2, "did you mean 'address'", id="misspelled key"),
        pytest.param("[temporl]\naddress = 'x'", 1, "did you mean 'temporal'", id="misspelled section"),
        pytest.param("\n[agents.a.config]\nmax_iteration = 3", 3, "did you mean 'max_iterations'", id="deep key"),
        pytest.param("[agents.a]\nconfig = { max_iteration = 3 }", 2, "'max_iterations'", id="inline table"),
        pytest.param("agents.a.config.max_iterations = 0", 1, "0 should be greater than or equal to 1", id="limit"),
        pytest.param("[agents.a.config]\ntimeout_s = -1", 2, "-1 should be greater than or equal to", id="negative"),
        pytest.param("[agents.a.config]\ntimeout_s = 'soon'", 2, "'soon' should be a valid number", id="wrong type"),
        pytest.param("[policy]\nengine = 'ceder'", 2, "'default' or 'allow'", id="not one of the choices"),
        pytest.param("policy = 3", 1, "policy: 3 should be", id="value in place of a section"),
        pytest.param("[tools]\npython = 'a:b'", 2, "tools.python: 'a:b' should be a list, as [\"a:b\"]", id="no list"),
        pytest.param("[tools.options.'bad name']\n", 1, "tools.options.bad name", id="bad tool name"),
        pytest.param("[agents.a.config]\nknowledge = 1", 2, "knowledge: 1 should be a valid dict", id="no table"),
        pytest.param("[agents.a.config.knowledge]\nmax_items = 1", 2, "'max_context_items'", id="key of a table in it"),
    ],
)
def test_a_mistake_is_reported_with_file_line_key_and_allowed_values(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(folder=tmp_path, env={})
    message = str(raised.value)
    assert message.startswith(f"{path}:{line}: ")
    assert says in message
    assert "\n" not in message


def test_bad_toml_is_reported_with_line_and_column(tmp_path: Path) -> None:
    path = written(tmp_path, "[temporal]\naddress = \n")
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 2, column 11") as raised:
        load_config(folder=tmp_path, env={})
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("value", ["[" * 5_000, "{a=" * 3_000, "1" * 5_000], ids=["lists", "tables", "a number"])
def test_toml_that_python_cannot_read_is_reported(tmp_path: Path, value: str) -> None:
    (tmp_path / "orga.toml").write_text(f"x = {value}")
    with pytest.raises(ConfigError, match=r"orga.toml: (not valid TOML|its values are nested)"):
        load_config(folder=tmp_path, env={})


@pytest.mark.parametrize(("stated", "expected"), [("", ""), ('cwd = "servers"', "servers"), ('cwd = "/srv"', "/srv")])
def test_a_server_starts_in_the_folder_of_its_file(tmp_path: Path, stated: str, expected: str) -> None:
    """The working folder may belong to somebody else, with its own program or `Makefile`."""
    (tmp_path / "orga.toml").write_text(f'[mcp.servers.x]\ncommand = "make"\n{stated}')
    (tmp_path / "below").mkdir()
    config = load_config(folder=tmp_path / "below", env={"ORGA_TRUST": "1"})
    assert config.mcp.servers["x"].cwd == tmp_path / expected


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Windows editors write it. It is not part of the first key and does not count for lines and columns."""
    path = tmp_path / "orga.toml"
    path.write_bytes(b'\xef\xbb\xbf[temporal]\naddress = "h:1"\n')
    assert load_config(folder=tmp_path, env={"ORGA_TRUST": "1"}).temporal.address == "h:1"
    path.write_bytes(b"\xef\xbb\xbf[temporal]\naddress = 1\n")
    with pytest.raises(ConfigError, match=r"orga\.toml:2"):
        load_config(folder=tmp_path, env={})


def test_a_file_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_bytes(b"# \xff\n")
    with pytest.raises(ConfigError, match="byte 2 is not UTF-8"):
        load_config(folder=tmp_path, env={})


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        pytest.param("ORGA_TEMPORAL__ADRESS", "x", "did you mean 'address'", id="misspelled key"),
        pytest.param("ORGA_TEMPORAL__ADDRESS__0", "x", "temporal.address", id="an item of a text"),
        pytest.param("ORGA_TEMPRAL__ADDRESS", "x", "did you mean 'temporal'", id="misspelled section"),
        pytest.param("ORGA_AGENTS__A__CONFIG__MAX_ITERATIONS", "-1", "greater than or equal to 1", id="bad value"),
        pytest.param("ORGA_POLICY", "allow", "ORGA_POLICY__KEY", id="a whole section"),
    ],
)
def test_a_mistake_in_the_environment_is_reported_with_its_variable(
    tmp_path: Path, variable: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(folder=tmp_path, env={variable: value})
    assert str(raised.value).startswith(f"{variable}: ")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("named", "env", "by"),
    [
        pytest.param(Path("gone.toml"), {}, "--config names gone.toml", id="by option"),
        pytest.param(None, {"ORGA_CONFIG": "gone.toml"}, "ORGA_CONFIG names gone.toml", id="by variable"),
    ],
)
def test_a_named_file_that_is_missing_is_refused(
    tmp_path: Path, named: Path | None, env: dict[str, str], by: str
) -> None:
    with pytest.raises(ConfigError, match=by):
        load_config(named, folder=tmp_path, env=env)


def test_every_problem_has_its_line(tmp_path: Path) -> None:
    written(tmp_path, "[temporal]\nx = 1\n[policy]\ny = 2\n")
    with pytest.raises(ConfigError) as raised:
        load_config(folder=tmp_path, env={})
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == ["temporal.x", "policy.y"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(("a", "b", "c"), 2, id="key in a table"),
        pytest.param(("a", "b", "none"), 1, id="falls back to its table"),
        pytest.param(("q", "x.y"), 4, id="quoted dotted key"),
        pytest.param(("nowhere",), None, id="not in the file"),
    ],
)
def test_line_of(path: tuple[str, ...], line: int | None) -> None:
    assert line_of('[a.b]\nc = "d = e"\n[q]\n"x.y" = 1\n', path) == line


def test_a_file_of_the_root_folder_replaces_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would otherwise be found as the file that it replaces, and a harmless file would need trust."""
    root_file = Path("/orga.toml")

    def is_root_file(path: Path) -> bool:
        return path == root_file

    monkeypatch.setattr(Path, "is_file", is_root_file)
    assert config_above(Path("/project/orga.toml")) == root_file
    assert config_above(root_file) is None


def test_paths_in_a_list_are_relative_to_the_file(tmp_path: Path) -> None:
    written(tmp_path, '[tools]\nmanifests = ["tools/*.toml", "/elsewhere/a.toml"]\n')
    (tmp_path / "deep").mkdir()
    config = load_config(folder=tmp_path / "deep", env={"ORGA_TRUST": "1"})
    assert config.tools.manifests == (str(tmp_path / "tools/*.toml"), "/elsewhere/a.toml")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param('[tools.files]\nroot = "a\\u0000b"', "tools.files.root", id="NUL"),
        pytest.param('[policy]\ndir = "%s"' % ("a" * 300), "policy.dir", id="a long name"),
        pytest.param('[tools]\nmanifests = ["%s*.toml"]' % ("a/" * 3_000), "tools.manifests.0", id="a long path"),
        pytest.param('[mcp.servers.a]\ncommand = "x"\ncwd = "\\u0000"', "mcp.servers.a.cwd", id="folder of a server"),
        pytest.param('[tools]\npython = ["%s:f"]' % ("a" * 5_000), "tools.python.0", id="a long module"),
    ],
)
def test_an_invalid_path_is_refused_with_its_key(tmp_path: Path, text: str, key: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=rf"{path}:\d: {key}: "):
        load_config(folder=tmp_path, env={"ORGA_TRUST": "1"})


def test_the_home_of_an_unknown_user_is_a_missing_folder(tmp_path: Path) -> None:
    written(tmp_path, '[tools.files]\nroot = "~no-such-user/x"\n[tools]\nmanifests = ["~no-such-user/*.toml"]\n')
    config = load_config(folder=tmp_path, env={"ORGA_TRUST": "1"})
    assert config.tools.files.root == tmp_path / "~no-such-user/x"
    with pytest.raises(ConfigError, match="which is no file"):
        load_config(Path("~no-such-user/orga.toml"), folder=tmp_path, env={})


@pytest.mark.parametrize(
    "code", ["from " + "." * 60 + " import a", f"import {'a' * 300}", f"import {'a.' * 3_000}b"], ids=str.__len__
)
def test_unresolvable_imports_do_not_make_the_configuration_unreadable(tmp_path: Path, code: str) -> None:
    (tmp_path / "mine.py").write_text(f"{code}\n")
    written(tmp_path, '[tools]\npython = ["mine:f"]\n')
    with pytest.raises(Untrusted):
        load_config(folder=tmp_path, env={})
