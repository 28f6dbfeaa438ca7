"""All mistakes in a manifest are reported at once, each with its line and its remedy."""

from pathlib import Path

import pytest

from orga.client.config.manifests import BrokenManifests, configured_manifests, manifest_paths, read_manifests
from orga.client.config.sections import OrgaConfig, ToolsConfig
from tests.support.tools.manifests import HEAD, problems

GOOD = 'name = "good"\ndescription = "Good."\n[command]\nargv = ["true"]\n'
RUN = '[command]\nargv = ["true"]\n'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "place", "problem", "remedy"),
    [
        pytest.param("name = ", "1", "not valid TOML", "orga tools new", id="no TOML"),
        pytest.param(f"efect = 'read_only'\n{HEAD}{RUN}", "1", "efect: unknown key", "'effect'", id="unknown key"),
        pytest.param(f"{HEAD}timeout_s = 0\n{RUN}", "3", "timeout_s", "greater", id="no time"),
        pytest.param(f"{HEAD}effect = 'harmless'\n{RUN}", "3", "effect", "'read_only'", id="unknown effect"),
        pytest.param(f"{HEAD}approval = 'yes'\n{RUN}", "3", "approval", "boolean", id="a text for a boolean"),
        pytest.param('description = "It."\n' + RUN, "1", "name: Field required", "tool-manifests", id="no name"),
        pytest.param('name = "a b"\ndescription = "It."\n' + RUN, "1", "name", "pattern", id="a space in the name"),
        pytest.param('name = "read_file"\ndescription = "It."\n' + RUN, "1", "taken by a built-in", "", id="built-in"),
        pytest.param('name = "reason"\ndescription = "It."\n' + RUN, "1", "the loop itself", "another", id="reserved"),
        pytest.param(HEAD, "1", "either a command or a request", "[command]", id="neither command nor request"),
        pytest.param(f"{HEAD}{RUN}[http]\nurl = 'https://h/'\n", "1", "either", "one of", id="command and request"),
        pytest.param(f"{HEAD}[command]\nargv = []\n", "4", "there is no program", "write it", id="no program"),
        pytest.param(f"{HEAD}[command]\nargv = ['a', 3]\n", "4", "an element is a text", "", id="a number in argv"),
        pytest.param(
            f"{HEAD}[command]\nargv = ['a', {{ wen = 'x', argv = ['y'] }}]\n", "4", "when", "argv", id="misspelled part"
        ),
        pytest.param(f"{HEAD}[command]\nargv = ['./a']\n", "4", "no program", "bare name", id="a relative program"),
        pytest.param(
            f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = ['{{x}}']\n",
            "5",
            "program depends",
            "one",
            id="a program that the model chooses",
        ),
        pytest.param(
            f"{HEAD}[command]\nargv = ['a', '{{x}}']\n", "4", "{x} is no argument", "arguments.x", id="undeclared"
        ),
        pytest.param(
            f"{HEAD}[command]\nargv = ['a', '{{x y}}']\n", "4", "no placeholder", "{name}", id="no placeholder"
        ),
        pytest.param(f"{HEAD}[command]\nargv = ['a', '}}']\n", "4", "no placeholder", "", id="a lone brace"),
        pytest.param(
            f"{HEAD}[command]\nargv = ['a', {{ when = 'x', argv = ['y'] }}]\n",
            "4",
            "'x' is no argument",
            "there are",
            id="an unknown condition",
        ),
        pytest.param(f"{HEAD}[arguments.x]\ntype = 'string'\n{RUN}", "3", "nothing uses", "{x}", id="unused"),
        pytest.param(
            f"{HEAD}[arguments.x]\ntype = 'string'\nrequired = false\n[command]\nargv = ['a', '{{x}}']\n",
            "7",
            "{x} may have no value",
            "when =",
            id="optional in argv",
        ),
        pytest.param(
            f"{HEAD}[arguments.x]\ntype = 'array'\nitems = {{ type = 'port' }}\n[command]\nargv = ['a', 'b{{x}}']\n",
            "7",
            "is an array",
            "alone",
            id="a list within a text",
        ),
        pytest.param(
            f"{HEAD}[command]\nargv = ['a', '{{secret:T}}']\n",
            "4",
            "is in a place where it would be seen",
            "env_from",
            id="a secret in argv",
        ),
        pytest.param(
            f"{HEAD}[http]\nurl = 'https://h/?k={{secret:T}}'\n",
            "4",
            "is in a place where it would be seen",
            "header",
            id="a secret in a URL",
        ),
        pytest.param(
            f"{HEAD}{RUN}[command.sandbox]\nnetwork = false\n",
            "6",
            "cannot be cut off",
            "bubblewrap",
            id="no isolation",
        ),
        pytest.param(
            f"{HEAD}{RUN}[command.sandbox]\nisolation = 'vm'\n", "6", "isolation", "'none'", id="unknown isolation"
        ),
        pytest.param(f"{HEAD}{RUN}[options]\nmax_attempts = 3\n", "6", "one attempt", "idempotent", id="repeated harm"),
        pytest.param(f"{HEAD}{RUN}[options]\neffect = 'read_only'\n", "6", "at the top", "move", id="misplaced effect"),
        pytest.param(f"{HEAD}{RUN}[options]\nexecution = 'local'\n", "6", "activity", "remove", id="a local command"),
        pytest.param(
            f"{HEAD}{RUN}[options.breaker]\ntreshold = 1\n", "6", "unknown key", "failure_threshold", id="breaker"
        ),
        pytest.param(
            f"{HEAD}{RUN}[output]\npattern = 'a'\n", "6", "belongs to", "both", id="a pattern without its parser"
        ),
        pytest.param(
            f"{HEAD}{RUN}[output]\nparser = 'regex'\npattern = '(?=a)'\n", "7", "no pattern", "RE2", id="a lookahead"
        ),
        pytest.param(f"{HEAD}{RUN}[output]\nstrict = true\n", "6", "no schema", "add", id="strict without a schema"),
        pytest.param(
            f"{HEAD}{RUN}[output]\nschema = {{ type = 'strin' }}\n", "6", "schema", "JSON Schema", id="no schema"
        ),
        pytest.param(
            f"{HEAD}[http]\nurl = 'ftp://h/'\n", "4", "could change scheme", "write both", id="another scheme"
        ),
        pytest.param(f"{HEAD}[http]\nurl = 'https://u:p@h/'\n", "4", "credentials", "absolute", id="a password"),
        pytest.param(f"{HEAD}[http]\nurl = 'https://h/#a'\n", "4", "never sent", "remove", id="a fragment"),
        pytest.param(
            f"{HEAD}arguments.x = {{ type = 'string' }}\n[http]\nurl = 'https://{{x}}.h/'\n",
            "5",
            "could change",
            "write",
            id="a host that the model chooses",
        ),
        pytest.param(
            f"{HEAD}arguments.x = {{ type = 'string' }}\n[http]\nurl = 'https://h{{x}}'\n",
            "5",
            "could change",
            "slash",
            id="a host that a value continues",
        ),
        pytest.param(
            f"{HEAD}arguments.x = {{ type = 'path' }}\n[http]\nurl = 'https://h/{{x}}'\n",
            "5",
            "path of this machine",
            "string",
            id="a path in a URL",
        ),
        pytest.param(
            f"{HEAD}[http]\nurl = 'http://h/'\nheaders = {{ a = '{{secret:T}}' }}\n",
            "4",
            "in the clear",
            "https",
            id="a secret without TLS",
        ),
        pytest.param(
            f"{HEAD}arguments.x = {{ type = 'url' }}\n[http]\nurl = '{{x}}'\nheaders = {{ a = '{{secret:T}}' }}\n",
            "5",
            "who gets the secrets",
            "host",
            id="a secret for any host",
        ),
        pytest.param(f"{HEAD}[http]\nurl = 'https://h/'\ntext = 'a'\n", "3", "no body", "POST", id="a body of a GET"),
        pytest.param(
            f"{HEAD}[http]\nmethod = 'POST'\nurl = 'https://h/'\ntext = 'a'\nform = {{ b = 'c' }}\n",
            "3",
            "one body",
            "keep one",
            id="two bodies",
        ),
        pytest.param(
            f"{HEAD}[http]\nmethod = 'POST'\nurl = 'https://h/'\njson = {{ a = 2020-01-01 }}\n",
            "6",
            "no JSON",
            "texts",
            id="a date in JSON",
        ),
        pytest.param(
            f"{HEAD}[http]\nurl = 'https://h/'\nheaders = {{ Host = 'x' }}\n",
            "5",
            "set by the client",
            "remove",
            id="host",
        ),
        pytest.param(
            f"{HEAD}[http]\nurl = 'https://h/'\nheaders = {{ a = \"x\\ny\" }}\n",
            "5",
            "printable ASCII",
            "remove",
            id="two headers in one",
        ),
    ],
)
def test_a_problem_has_its_line_and_remedy(text: str, place: str, problem: str, remedy: str) -> None:
    found = problems(text)
    (first, *_) = [each for each in found if problem in each]
    assert first.startswith(f"it.toml:{place}: ")
    assert remedy in first


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        pytest.param("type = 'pth'", "'path'", id="unknown type"),
        pytest.param("min = 1", "type: Field required", id="no type"),
        pytest.param("type = 'string', dafault = 'a'", "'default'", id="unknown key"),
        pytest.param("type = 'integer', pattern = 'a'", "pattern means nothing", id="a key of another type"),
        pytest.param("type = 'enum'", "needs its values", id="an enum of nothing"),
        pytest.param("type = 'array'", "needs the type of its items", id="an array of nothing"),
        pytest.param("type = 'array', items = { type = 'array' }", "which is no array", id="an array of arrays"),
        pytest.param(
            "type = 'array', items = { type = 'string', default = 'a' }",
            "neither required",
            id="an item with a default",
        ),
        pytest.param("type = 'array', items = { type = 'port', pattern = 'a' }", "pattern means nothing", id="an item"),
        pytest.param("type = 'integer', default = 'a'", "does not fit", id="a default of another type"),
        pytest.param("type = 'integer', max = 3, default = 4", "does not fit", id="a default beyond the bounds"),
        pytest.param("type = 'duration', default = '5'", "no duration", id="a default that is no duration"),
        pytest.param("type = 'path', default = '../x'", "`..`", id="a default outside the root"),
        pytest.param("type = 'string', default = 'a', required = true", "no default", id="required, with a default"),
        pytest.param("type = 'integer', min = 3, max = 2", "min is above max", id="reversed bounds"),
        pytest.param("type = 'string', min = -1", "a length", id="a negative length"),
        pytest.param("type = 'string', pattern = '(a'", "no pattern", id="a broken pattern"),
        pytest.param("type = 'string', allowed = ['a', 3]", "3 is no string", id="an allowed value of another type"),
        pytest.param("type = 'scope_target', scope = ['*']", "'*'", id="a scope of everything"),
        pytest.param("type = 'integer', min = '1'", "min", id="a text for a bound"),
        pytest.param("type = 'path', required = 'no'", "required", id="a text for a boolean"),
    ],
)
def test_a_contradictory_declaration_is_reported(declared: str, says: str) -> None:
    found = problems(f"{HEAD}[arguments]\nx = {{ {declared} }}\n[command]\nargv = ['a', '{{x}}']\n")
    assert any(says in each and each.startswith("it.toml:4: ") for each in found), found


def test_all_problems_are_reported_in_file_order() -> None:
    found = problems(f"{HEAD}approval = 1\n[arguments.x]\ntype = 'y'\n[command]\nargv = [1]\n")
    assert [each.split(":")[1] for each in found] == ["3", "5", "7"]


def test_two_files_cannot_declare_one_name() -> None:
    for name in ("a", "b"):
        Path(f"{name}.toml").write_text(GOOD)
    files, found = read_manifests(manifest_paths(["*.toml"]))
    assert [str(file.path) for file in files] == ["a.toml"]
    assert [str(each) for each in found] == ["b.toml:1: the name 'good' is taken by a.toml; choose another"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot be read (No such file", id="no file"),
        pytest.param(b"\xff", "byte 0 is not UTF-8", id="no text"),
        pytest.param(b"#" * 500_001, "more than 500,000 bytes", id="a very long file"),
    ],
)
def test_an_unreadable_file_is_reported(content: bytes | None, says: str) -> None:
    if content is not None:
        Path("it.toml").write_bytes(content)
    _, (problem,) = read_manifests([Path("it.toml")])
    assert says in str(problem)


def test_a_worker_uses_all_manifests_or_none() -> None:
    Path("a.toml").write_text(GOOD)
    Path("b.toml").write_text("name = 1")
    assert len(configured_manifests(OrgaConfig(tools=ToolsConfig(manifests=("a.toml",))))) == 1
    with pytest.raises(BrokenManifests, match=r"b\.toml:1: name"):
        configured_manifests(OrgaConfig(tools=ToolsConfig(manifests=("*.toml",))))


def test_globs_find_each_file_once_in_order() -> None:
    Path("t/u").mkdir(parents=True)
    for name in ("t/b.toml", "t/a.toml", "t/u/c.toml", "t/d.txt"):
        Path(name).write_text(GOOD)
    found = manifest_paths(["t/b.toml", "t/**/*.toml", "gone.toml"])
    assert [str(path) for path in found] == ["t/b.toml", "t/a.toml", "t/u/c.toml", "gone.toml"]
