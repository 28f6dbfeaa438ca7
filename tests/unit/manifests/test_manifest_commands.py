"""Commands of manifests: how they are started, how they end, and how their output is used."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from orga.activities.ports import ToolContext, ToolError
from tests.support.tools.calls import failure, result
from tests.support.tools.manifests import a_manifest_tool

SECRET = "s3cret/value=1"
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.stdin.read()]))"


def python(code: str, *parts: str, more: str = "", arguments: str = "") -> str:
    """Return a manifest that runs Python code. `parts` are TOML."""
    escaped = code.replace("{", "{{").replace("}", "}}")
    argv = ", ".join([f"'{sys.executable}'", '"-ISc"', f"'''{escaped}'''", *parts])
    return f"{arguments}\n[command]\nargv = [{argv}]\n{more}"


async def shown(root: Path, text: str, env: dict[str, str] | None = None, **arguments: object) -> list[Any]:
    """Return arguments, environment, folder and input of the program."""
    return json.loads(await result(a_manifest_tool(root, text, env), **arguments))


@pytest.mark.parametrize(
    ("arguments", "parts", "given", "expected"),
    [
        pytest.param('x = { type = "string" }', ['"a={x}.b"'], {"x": "1 2"}, ["a=1 2.b"], id="within a text"),
        pytest.param('x = { type = "boolean" }', ['"{x}"'], {"x": True}, ["true"], id="a boolean as a text"),
        pytest.param('x = { type = "number" }', ['"{x}"'], {"x": 1.5}, ["1.5"], id="a number"),
        pytest.param('x = { type = "string" }', ['"{{x}}"', '"{x}"'], {"x": "1"}, ["{x}", "1"], id="braces"),
        pytest.param('x = { type = "integer", default = 3 }', ['"{x}"'], {}, ["3"], id="a default"),
        pytest.param(
            'x = { type = "array", items = { type = "string" } }',
            ['"-f"', '"{x}"', '"end"'],
            {"x": ["a b", "", "c"]},
            ["-f", "a b", "", "c", "end"],
            id="a list is as many arguments as it has items",
        ),
        pytest.param(
            'x = { type = "array", items = { type = "string" } }', ['"{x}"', '"end"'], {"x": []}, ["end"], id="no items"
        ),
        pytest.param(
            'x = { type = "boolean", default = false }',
            ['{ when = "x", argv = ["--all"] }'],
            {},
            [],
            id="a flag is off",
        ),
        pytest.param(
            'x = { type = "boolean", default = false }',
            ['{ when = "x", argv = ["--all"] }'],
            {"x": True},
            ["--all"],
            id="a flag is on",
        ),
        pytest.param(
            'x = { type = "integer", required = false }',
            ['{ when = "x", argv = ["-n", "{x}"] }'],
            {},
            [],
            id="an option that is not given",
        ),
        pytest.param(
            'x = { type = "integer", required = false }',
            ['{ when = "x", argv = ["-n", "{x}"] }'],
            {"x": 0},
            ["-n", "0"],
            id="an option whose value is 0",
        ),
        pytest.param(
            'x = { type = "string", allow_dash = true }',
            ['"--"', '"{x}"'],
            {"x": "-rf"},
            ["--", "-rf"],
            id="a dash allowed by the author",
        ),
        pytest.param('x = { type = "path" }', ['"{x}"'], {"x": "-rf"}, ["./-rf"], id="a path is no flag"),
        pytest.param('x = { type = "duration" }', ['"{x}"'], {"x": "2m"}, ["120"], id="a duration in seconds"),
    ],
)
async def test_one_text_is_one_argument(
    tmp_path: Path, arguments: str, parts: list[str], given: dict[str, Any], expected: list[str]
) -> None:
    text = python(SHOW, *parts, arguments=f"[arguments]\n{arguments}")
    assert (await shown(tmp_path, text, **given))[0] == expected


async def test_a_negative_number_does_not_become_a_flag(tmp_path: Path) -> None:
    tool = a_manifest_tool(tmp_path, python(SHOW, '"{n}"', arguments='arguments.n = { type = "integer" }'))
    error = await failure(tool, n=-9)
    assert "n: begins with a dash" in str(error)


async def test_a_path_is_relative_to_the_folder_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    text = python(SHOW, '"{p}"', arguments='arguments.p = { type = "path" }', more='cwd = "sub"')
    inside, outside = await shown(tmp_path, text, p="sub/a"), await shown(tmp_path, text, p="b")
    assert (inside[0], inside[2]) == (["./a"], str(tmp_path / "sub"))
    assert outside[0] == [str(tmp_path / "b")]


async def test_the_environment_comes_only_from_the_manifest(tmp_path: Path) -> None:
    """The worker's other variables, including secrets, are not passed on."""
    text = python(SHOW, more='env = { MODE = "fast" }\nenv_from = ["TOKEN"]')
    worker = {"TOKEN": SECRET, "OTHER_TOKEN": "another"}
    argv, environment, _, _ = await shown(tmp_path, text, worker)
    assert (environment["MODE"], environment["TOKEN"], environment["ORGA_IDEMPOTENCY_KEY"]) == (
        "fast",
        "[redacted]",
        "k1",
    )
    assert {name for name in environment if not name.startswith("GIT_CONFIG_")} <= {
        "MODE", "TOKEN", "ORGA_IDEMPOTENCY_KEY", "PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PYTHONPYCACHEPREFIX",
    }  # fmt: skip
    assert argv == []


async def test_standard_input_takes_any_value(tmp_path: Path) -> None:
    text = python(SHOW, arguments='arguments.x = { type = "string", multiline = true }', more='stdin = "<{x}>"')
    assert (await shown(tmp_path, text, x="-a\n$(b)"))[3] == "<-a\n$(b)>"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        pytest.param("import sys; print('out'); sys.exit('the cause')", "CommandFailed", "code 1", id="exit code"),
        pytest.param("import sys; sys.exit('the cause')", "CommandFailed", "the cause", id="its standard error"),
        pytest.param(
            "print('the cause'); raise SystemExit(3)",
            "CommandFailed",
            "the cause",
            id="its output, without an error output",
        ),
        pytest.param("raise SystemExit(2)", "CommandFailed", "without output", id="silence"),
        pytest.param("import os; os.kill(os.getpid(), 9)", "CommandFailed", "SIGKILL", id="a signal"),
        pytest.param("import time; print('begun', flush=True); time.sleep(60)", "TimeLimit", "begun", id="a timeout"),
    ],
)
async def test_a_failing_command_is_an_error(tmp_path: Path, code: str, kind: str, says: str) -> None:
    text = "name = 'tool'\ndescription = 'A tool.'\ntimeout_s = 1.5\n" + python(code)
    error = await failure(a_manifest_tool(tmp_path, text))
    assert error.kind == kind
    assert says in str(error)


@pytest.mark.parametrize(
    ("code", "retryable"), [pytest.param(75, True, id="declared"), pytest.param(1, False, id="not declared")]
)
async def test_exit_codes_determine_whether_the_call_is_retryable(tmp_path: Path, code: int, retryable: bool) -> None:
    error = await failure(a_manifest_tool(tmp_path, python(f"raise SystemExit({code})", more="retry_codes = [75]")))
    assert error.retryable is retryable


async def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    error = await failure(a_manifest_tool(tmp_path, '[command]\nargv = ["no-such-program-here"]'))
    assert "no-such-program-here" in str(error)
    assert not error.retryable


async def test_a_limit_of_the_sandbox_is_named(tmp_path: Path) -> None:
    text = """
    [command]
    argv = ["dd", "if=/dev/zero", "of=x", "bs=2000", "count=1"]
    [command.sandbox]
    limits = { file_bytes = 1_000 }
    """
    error = await failure(a_manifest_tool(tmp_path, text))
    assert "its limit file_bytes" in str(error)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import os; print(os.environ['TOKEN'])", id="output"),
        pytest.param("import os, json; print(json.dumps([os.environ['TOKEN']]))", id="JSON"),
        pytest.param("import os, sys; sys.exit(os.environ['TOKEN'])", id="error"),
        pytest.param("import os, urllib.parse as p; print(p.quote(os.environ['TOKEN'], safe=''))", id="URL"),
        pytest.param("import os, base64; print(base64.b64encode(os.environ['TOKEN'].encode()))", id="base64"),
        pytest.param("import os; print('x' * 990 + os.environ['TOKEN'])", id="cut in the middle"),
        pytest.param(
            "import os; print('x' * 3000, os.environ['TOKEN'] * 200); raise SystemExit(1)", id="cut in an error"
        ),
    ],
)
async def test_results_contain_no_secret(tmp_path: Path, code: str) -> None:
    more = 'env_from = ["TOKEN"]\nmax_output_bytes = 1_000'
    tool = a_manifest_tool(tmp_path, python(code, more=more), {"TOKEN": SECRET})
    try:
        text = await result(tool)
    except ToolError as error:
        text = str(error)
    assert not any(form in text for form in (SECRET, "s3cret", "s3cret%2Fvalue", "czNjcmV0"))


def test_a_missing_secret_stops_the_worker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the environment has no TOKEN"):
        a_manifest_tool(tmp_path, python("", more='env_from = ["TOKEN"]'))


def test_a_folder_outside_the_root_stops_the_worker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"command\.cwd: \.\./x"):
        a_manifest_tool(tmp_path, python("", more='cwd = "../x"'))


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        pytest.param("print('a'); print()", "", "a", id="text"),
        pytest.param("pass", "", "(no output)", id="nothing"),
        pytest.param("print('[1, {\"a\": null}]')", 'parser = "json"', '[1, {"a": null}]', id="JSON"),
        pytest.param("print('a'); print('ü')", 'parser = "lines"', '["a", "ü"]', id="lines"),
        pytest.param(
            "print('a=1'); print('no'); print('b=2')",
            "parser = 'regex'\npattern = '^(?P<k>\\w)=(?P<v>\\d)$'",
            '[{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]',
            id="named groups",
        ),
        pytest.param("print('a1b2')", "parser = 'regex'\npattern = '\\d'", '["1", "2"]', id="a pattern without names"),
        pytest.param(
            "print('[1]')", 'parser = "json"\nschema = { type = "array" }', "[1]", id="output valid for its schema"
        ),
        pytest.param(
            "print('[1]')",
            'parser = "json"\nschema = { type = "object" }',
            '[Warning] the output does not fit its schema: $: [1] is not of type "object"\n[1]',
            id="output invalid for its schema",
        ),
        pytest.param(
            "print('ab')",
            "schema = { type = 'string', maxLength = 1 }",
            '[Warning] the output does not fit its schema: $: "ab" is longer than 1 character\nab',
            id="a text invalid for its schema",
        ),
    ],
)
async def test_the_output_is_parsed_and_validated(tmp_path: Path, code: str, output: str, expected: str) -> None:
    assert await result(a_manifest_tool(tmp_path, python(code, more=f"[output]\n{output}"))) == expected


@pytest.mark.parametrize(
    ("code", "output", "kind"),
    [
        pytest.param("print('{')", 'parser = "json"', "BadOutput", id="no JSON"),
        pytest.param("print('NaN')", 'parser = "json"', "BadOutput", id="no number"),
        pytest.param("print('[' * 100_000)", 'parser = "json"', "BadOutput", id="deep JSON"),
        pytest.param("print('1' * 2_000_000)", 'parser = "lines"', "BadOutput", id="over the limit"),
        pytest.param(
            "print('1')", 'parser = "json"\nstrict = true\nschema = { type = "string" }', "OutputMismatch", id="strict"
        ),
    ],
)
async def test_unusable_output_is_an_error(tmp_path: Path, code: str, output: str, kind: str) -> None:
    error = await failure(a_manifest_tool(tmp_path, python(code, more=f"[output]\n{output}")))
    assert (error.kind, error.retryable) == (kind, False)


async def test_a_long_text_is_cut_with_a_note(tmp_path: Path) -> None:
    text = await result(a_manifest_tool(tmp_path, python("print('1' * 9_999)", more="max_output_bytes = 1_000")))
    assert text.startswith("1" * 900)
    assert text.endswith("[cut after 1,000 bytes]")


async def test_progress_names_only_the_program(tmp_path: Path) -> None:
    """Arguments may be private, and heartbeats are visible to everybody."""
    notes: list[str] = []
    tool = a_manifest_tool(tmp_path, '[arguments]\nx = { type = "string" }\n[command]\nargv = ["echo", "{x}"]')
    await tool.call({"x": "private"}, ToolContext("c1", "k1", heartbeat=notes.append))
    assert notes == ["running echo"]
