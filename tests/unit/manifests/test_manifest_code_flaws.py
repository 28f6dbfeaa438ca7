"""The model's values never become code of a shell, another interpreter or a started program."""

from pathlib import Path

import pytest

from tests.support.tools.manifests import HEAD, problems


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("argv", "is_code"),
    [
        pytest.param('["sh", "-c", "grep {x}"]', True, id="a shell"),
        pytest.param('["/bin/bash", "-lc", "{x}"]', True, id="a shell by its path"),
        pytest.param('["env", "python3.11", "-Ic", "print({x})"]', True, id="Python after env"),
        pytest.param('["perl", "-ne", "{x}"]', True, id="Perl"),
        pytest.param('["sh", "-c", "grep \\"$1\\"", "sh", "{x}"]', False, id="an argument of a shell's code"),
        pytest.param('["grep", "-e", "{x}"]', False, id="no interpreter"),
        *(
            pytest.param(argv, True, id=argv)
            for argv in (
                '["bash", "-c", "--", "echo {x}"]',
                '["bash", "-c", "--", "-{x}"]',
                '["awk", "--", "-{x} {{print}}", "file"]',
                '["jq", "--", "-{x}", "file"]',
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
                '["python3", "--", "-c", "{x}"]',
                '["bash", "--", "-c", "{x}"]',
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
def test_values_that_become_code_are_reported(argv: str, is_code: bool) -> None:
    found = problems(f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = {argv}\n")
    assert any("would be read as code" in each for each in found) is is_code


@pytest.mark.parametrize(
    ("argv", "is_code"),
    [
        pytest.param('["bash"]', True, id="a shell"),
        pytest.param('["python3", "-"]', True, id="Python reading it"),
        pytest.param('["env", "sh"]', True, id="a shell after env"),
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
def test_input_that_becomes_code_is_reported(argv: str, is_code: bool) -> None:
    found = problems(f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = {argv}\nstdin = '{{x}}'\n")
    assert any("would be read as code" in each for each in found) is is_code


@pytest.mark.parametrize(
    "argv", ['["env", "{x}"]', '["sudo", "-u", "me", "{x}"]', '["find", ".", "-exec", "{x}", ";"]']
)
def test_values_that_name_a_program_for_another_program_are_reported(argv: str) -> None:
    found = problems(f"{HEAD}arguments.x = {{ type = 'string' }}\n[command]\nargv = {argv}\n")
    assert any("the name of a program" in each for each in found)
