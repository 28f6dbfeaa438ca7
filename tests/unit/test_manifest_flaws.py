"""What is wrong with a manifest is told with its line and its remedy, all of it at once."""

from pathlib import Path

import pytest

from client.config import OrgaConfig, ToolsConfig
from client.manifest_files import BrokenManifests, manifest_paths, manifests_of, read_manifests

GOOD = 'name = "good"\ndescription = "Good."\n[command]\nargv = ["true"]\n'
HEAD = 'name = "it"\ndescription = "It."\n'
RUN = '[command]\nargv = ["true"]\n'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str) -> list[str]:
    Path("it.toml").write_text(text)
    return [str(problem) for problem in read_manifests([Path("it.toml")])[1]]


@pytest.mark.parametrize(
    ("text", "place", "problem", "remedy"),
    [
        pytest.param("name = ", "1", "not valid TOML", "orga tools new", id="no TOML"),
        pytest.param(f"efect = 'read_only'\n{HEAD}{RUN}", "1", "efect: unknown key", "'effect'", id="unknown key"),
        pytest.param(f"{HEAD}timeout_s = 0\n{RUN}", "3", "timeout_s", "greater", id="no time"),
        pytest.param(f"{HEAD}effect = 'harmless'\n{RUN}", "3", "effect", "'read_only'", id="unknown effect"),
        pytest.param(f"{HEAD}approval = 'yes'\n{RUN}", "3", "approval", "boolean", id="a text for a truth"),
        pytest.param('description = "It."\n' + RUN, "1", "name: Field required", "tool-manifests", id="no name"),
        pytest.param('name = "a b"\ndescription = "It."\n' + RUN, "1", "name", "pattern", id="a blank in the name"),
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
            "stands where it would be seen",
            "env_from",
            id="a secret in argv",
        ),
        pytest.param(
            f"{HEAD}[http]\nurl = 'https://h/?k={{secret:T}}'\n",
            "4",
            "stands where it would be seen",
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
        pytest.param(f"{HEAD}{RUN}[output]\npattern = 'a'\n", "6", "belongs to", "both", id="a pattern for nothing"),
        pytest.param(
            f"{HEAD}{RUN}[output]\nparser = 'regex'\npattern = '(?=a)'\n", "7", "no pattern", "RE2", id="looking ahead"
        ),
        pytest.param(f"{HEAD}{RUN}[output]\nstrict = true\n", "6", "no schema", "add", id="strict about nothing"),
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
            id="a secret in the clear",
        ),
        pytest.param(
            f"{HEAD}arguments.x = {{ type = 'url' }}\n[http]\nurl = '{{x}}'\nheaders = {{ a = '{{secret:T}}' }}\n",
            "5",
            "who is told the secrets",
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
    ("argv", "is_code"),
    [
        pytest.param('["sh", "-c", "grep {x}"]', True, id="a shell"),
        pytest.param('["/bin/bash", "-lc", "{x}"]', True, id="a shell by its path"),
        pytest.param('["env", "python3.11", "-Ic", "print({x})"]', True, id="Python behind env"),
        pytest.param('["perl", "-ne", "{x}"]', True, id="Perl"),
        pytest.param('["sh", "-c", "grep \\"$1\\"", "sh", "{x}"]', False, id="an argument of a shell's code"),
        pytest.param('["grep", "-e", "{x}"]', False, id="no interpreter"),
        *(
            pytest.param(argv, True, id=argv)
            for argv in (
                '["bash", "-c", "--", "echo {x}"]',
                '["bash", "-xc", "echo {x}"]',
                '["bash", "-o", "pipefail", "-c", "echo {x}"]',
                '["bash", "--norc", "-c", "{x}"]',
                '["busybox", "sh", "-c", "{x}"]',
                '["python3", "-cprint(\'{x}\')"]',
                '["python3", "-Icprint(\'{x}\')"]',
                '["python3", "-I", "-W", "ignore", "-c", "print({x})"]',
                '["sudo", "-u", "me", "sh", "-xc", "{x}"]',
                '["timeout", "5", "nice", "-n", "3", "bash", "-c", "{x}"]',
                '["nohup", "env", "A=b", "bash", "-lc", "{x}"]',
                '["xargs", "-n1", "sh", "-c", "echo {x}"]',
                '["find", ".", "-exec", "sh", "-c", "echo {x}", ";"]',
                '["awk", "/{x}/ {{print}}", "file"]',
                '["gawk", "-F:", "-e", "{x}", "file"]',
                '["sed", "-n", "s/{x}/y/p", "file"]',
                '["sed", "--expression=s/{x}/y/", "file"]',
                '["sed", "-ne{x}p", "file"]',
                '["perl", "-we", "print {x}"]',
                '["ruby", "-e{x}"]',
                '["node", "--eval={x}"]',
                '["node", "-p", "{x}"]',
                '["php", "-r", "{x}"]',
                '["lua5.4", "-e", "{x}"]',
                '["osascript", "-e", "say {x}"]',
                '["psql", "-d", "shop", "-c", "select {x}"]',
                '["psql", "--command=select {x}"]',
                '["mysql", "-p", "-e", "select {x}"]',
                '["sqlite3", "shop.db", "select {x}"]',
                '["jq", ".{x}", "file"]',
                '["ssh", "host", "ls {x}"]',
                '["ssh", "-o", "ProxyCommand={x}", "host"]',
                '["su", "me", "-c", "{x}"]',
                '["git", "-c", "alias.a=!{x}", "a"]',
                '["tar", "-cf", "a.tar", "--checkpoint-action=exec={x}", "."]',
                '["make", "NAME={x}"]',
                '["watch", "ls {x}"]',
                '["parallel", "echo {x}"]',
                '["pwsh", "-Command", "{x}"]',
                '["gdb", "-ex", "{x}"]',
                '["rsync", "-e", "{x}", "a", "b"]',
                '["env", "-S", "{x}"]',
                '["sh", "-c", "echo $1; {x}", "sh"]',
                '["bwrap", "--ro-bind", "/", "/", "sh", "-c", "{x}"]',
                '["tini", "--", "bash", "-lc", "{x}"]',
                '["docker-compose", "exec", "web", "python3", "-c", "{x}"]',
                '["runuser", "-u", "me", "--", "sh", "-c", "{x}"]',
                '["bash", "--rcfile", "/dev/null", "-c", "{x}"]',
                '["fish", "--command={x}"]',
                '["node", "-pe", "{x}"]',
                '["jq", "--arg", "a", "b", ".{x}", "file"]',
                '["jq", "--indent", "2", ".{x}"]',
                '["yq", "eval", ".{x}", "file"]',
                '["gawk", "-i", "inplace", "{x}", "file"]',
                '["duckdb", "a.db", "select {x}"]',
                '["mongosh", "--eval", "{x}"]',
                '["clickhouse-client", "-q", "select {x}"]',
                '["git", "clone", "--config", "core.fsmonitor={x}", "a"]',
                '["git", "difftool", "--extcmd={x}"]',
                '["scp", "-o", "ProxyCommand={x}", "a", "host:b"]',
                '["split", "--filter={x}", "file"]',
                '["rg", "--pre", "{x}", "a"]',
                '["erl", "-noshell", "-eval", "{x}"]',
                '["guile", "-c", "{x}"]',
                '["tmux", "send-keys", "-t", "one", "{x}", "Enter"]',
            )
        ),
        *(
            pytest.param(argv, False, id=argv)
            for argv in (
                '["awk", "-v", "n={x}", "$1 == n", "file"]',
                '["awk", "-f", "prog.awk", "{x}"]',
                '["sed", "-n", "1,5p", "{x}"]',
                '["jq", "--arg", "n", "a", ".n", "{x}"]',
                '["psql", "-v", "n={x}", "-f", "q.sql"]',
                '["git", "switch", "-c", "{x}"]',
                '["git", "log", "--grep={x}"]',
                '["python3", "tool.py", "-c", "{x}"]',
                '["python3", "-m", "json.tool", "{x}"]',
                '["find", "{x}", "-name", "a"]',
                '["timeout", "{x}", "ls"]',
                '["nice", "-n", "{x}", "ls"]',
                '["grep", "-r", "awk", "{x}"]',
                '["tar", "-xf", "{x}"]',
                '["make", "{x}"]',
                '["bash", "script.sh", "{x}"]',
                '["jq", "--arg", "n", "{x}", ".n == $n", "file"]',
                '["yq", "eval", ".n", "{x}"]',
                '["tar", "-cf", "{x}", "sed", "-C", "a"]',
                '["node", "tool.js", "-e", "{x}"]',
                '["tmux", "kill-session", "-t", "{x}"]',
            )
        ),
    ],
)
def test_no_value_becomes_code(argv: str, is_code: bool) -> None:
    found = problems(f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = {argv}\n")
    assert any("would be read as code" in each for each in found) is is_code


@pytest.mark.parametrize(
    ("argv", "is_code"),
    [
        pytest.param('["bash"]', True, id="a shell"),
        pytest.param('["python3", "-"]', True, id="Python told to read it"),
        pytest.param('["env", "sh"]', True, id="a shell behind env"),
        pytest.param('["psql", "shop"]', True, id="a client of a database"),
        pytest.param('["sqlite3", "a.db", "select 1"]', False, id="SQL that is given"),
        pytest.param('["sqlite3"]', True, id="SQL"),
        pytest.param('["xargs", "sh", "-c"]', True, id="words of the input become arguments of a shell"),
        pytest.param('["ssh", "host"]', True, id="a shell elsewhere"),
        pytest.param('["ssh", "host", "cat"]', False, id="a command elsewhere"),
        pytest.param('["bash", "-s", "a"]', True, id="a shell with arguments that reads it"),
        pytest.param('["bash", "/dev/stdin"]', True, id="a shell that is given it as its file"),
        pytest.param('["python3", "/proc/self/fd/0"]', True, id="Python that is given it as its file"),
        pytest.param('["awk", "-f", "-", "file"]', True, id="a program of awk"),
        pytest.param('["sed", "-f/dev/stdin", "file"]', True, id="a script of sed"),
        pytest.param('["psql", "-f", "-"]', True, id="SQL as a file"),
        pytest.param('["make", "-f", "-"]', True, id="a makefile"),
        pytest.param('["at", "now"]', True, id="a job"),
        pytest.param('["awk", "-f", "prog.awk"]', False, id="data of awk"),
        pytest.param('["sh", "-c", "cat"]', False, id="a shell that has its code"),
        pytest.param('["python3", "tool.py"]', False, id="a script that reads data"),
        pytest.param('["python3", "-m", "json.tool"]', False, id="a module that reads data"),
        pytest.param('["wc", "-l"]', False, id="no interpreter"),
    ],
)
def test_no_input_becomes_code(argv: str, is_code: bool) -> None:
    found = problems(f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = {argv}\nstdin = '{{x}}'\n")
    assert any("would be read as code" in each for each in found) is is_code


@pytest.mark.parametrize(
    "argv", ['["env", "{x}"]', '["sudo", "-u", "me", "{x}"]', '["find", ".", "-exec", "{x}", ";"]']
)
def test_no_value_names_what_another_program_runs(argv: str) -> None:
    found = problems(f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = {argv}\n")
    assert any("the name of a program" in each for each in found)


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
        pytest.param("type = 'integer', min = 3, max = 2", "min is above max", id="no number between"),
        pytest.param("type = 'string', min = -1", "a length", id="a negative length"),
        pytest.param("type = 'string', pattern = '(a'", "no pattern", id="a broken pattern"),
        pytest.param("type = 'string', allowed = ['a', 3]", "3 is no string", id="an allowed value of another type"),
        pytest.param("type = 'scope_target', scope = ['*']", "'*'", id="a scope of everything"),
        pytest.param("type = 'integer', min = '1'", "min", id="a text for a bound"),
        pytest.param("type = 'path', required = 'no'", "required", id="a text for a truth"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_told(declared: str, says: str) -> None:
    found = problems(f"{HEAD}[arguments]\nx = {{ {declared} }}\n[command]\nargv = ['a', '{{x}}']\n")
    assert any(says in each and each.startswith("it.toml:4: ") for each in found), found


def test_every_problem_is_told_in_the_order_of_the_file() -> None:
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
        pytest.param(b"#" * 500_001, "more than 500,000 bytes", id="a book"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(content: bytes | None, says: str) -> None:
    if content is not None:
        Path("it.toml").write_bytes(content)
    _, (problem,) = read_manifests([Path("it.toml")])
    assert says in str(problem)


def test_a_worker_takes_all_manifests_or_none() -> None:
    Path("a.toml").write_text(GOOD)
    Path("b.toml").write_text("name = 1")
    assert len(manifests_of(OrgaConfig(tools=ToolsConfig(manifests=("a.toml",))))) == 1
    with pytest.raises(BrokenManifests, match=r"b\.toml:1: name"):
        manifests_of(OrgaConfig(tools=ToolsConfig(manifests=("*.toml",))))


def test_globs_find_files_once_and_in_order() -> None:
    Path("t/u").mkdir(parents=True)
    for name in ("t/b.toml", "t/a.toml", "t/u/c.toml", "t/d.txt"):
        Path(name).write_text(GOOD)
    found = manifest_paths(["t/b.toml", "t/**/*.toml", "gone.toml"])
    assert [str(path) for path in found] == ["t/b.toml", "t/a.toml", "t/u/c.toml", "gone.toml"]
