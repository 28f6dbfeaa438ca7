"""No agent can write its own rules, with `write_file` or an isolated command, by any spelling of the path."""

import asyncio
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from orga.activities.ports import Tool, ToolError
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import rules_in_use, writable_rules
from orga.client.workers.tool_sources import worker_tools
from tests.support.parts.bubblewrap import bubblewrap
from tests.support.tools.calls import CONTEXT, failure, result

CONFIG = """
[agents.default]
tools = ["read_file", "write_file", "run_command", "count"]
[tools]
python = ["shop:refund", "house.till:close"]
manifests = ["tools/*.toml", "one_tool.toml"]
[tools.commands]
allow = ["sh"]
sandbox = { isolation = "bubblewrap" }
[mcp.servers.stock]
command = "python"
args = ["servers/stock.py", "--settings=servers/stock.json", "servers/later.sh"]
[policy.opa]
wasm = "gate.wasm"
"""
MANIFEST = 'name = "%s"\ndescription = "x"\n[command]\nargv = ["python3", "scripts/count.py"]\n'
FILES = {
    "shop.py": "import prices\nfrom house import ledger\n\ndef refund(order: str) -> str:\n    return order\n",
    "prices.py": "LAMP = 900\n",
    "house/__init__.py": "",
    "house/ledger.py": "",
    "house/till.py": "def close(day: str) -> str:\n    return day\n",
    "tools/count.toml": MANIFEST % "count",
    "one_tool.toml": MANIFEST % "one",
    "scripts/count.py": "import json, units",
    "scripts/units.py": "",
    "servers/stock.py": "",
    "servers/stock.json": "",
    "policies/reading.cedar": "permit (principal, action, resource);",
    "policies/reading.test.toml": "",
    "gate.wasm": "",
    ".git/config": "",
    "vendored/.git/hooks/post-merge": "",
    "nested/orga.toml": "",
    "notes/a.md": "a",
}
RULES = [name for name in FILES if name != "notes/a.md"]
MISSING = [
    "policies/pay.cedar",
    "policies/chat/pay.cedar",
    "tools/pay.toml",
    "notes/orga.toml",
    "prices/__init__.py",
    "house/ledger/__init__.py",
    "notes/.git/hooks/pre-commit",
    "scripts/json.py",
    "house/till/__init__.py",
    "house/till.cpython-311-x86_64-linux-gnu.so",
    "prices.abi3.so",
    "scripts/units/__init__.pyc",
    "scripts/__pycache__/units.cpython-311.pyc",
    "scripts/enum.py",
    "servers/later.sh",
]
SPELLINGS = ["./policies//pay.cedar", "POLICIES/pay.cedar", "Orga.TOML", "link/pay.cedar", "deep/up/policies/x.cedar"]


@pytest.fixture(name="project")
def a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    for name, text in (FILES | {"orga.toml": CONFIG}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "link").symlink_to("policies")
    (project / "deep").mkdir()
    (project / "deep" / "up").symlink_to("..")
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setenv("ORGA_HOME", str(project / "state"))
    return project


def config_of(project: Path, env: Mapping[str, str] | None = None) -> OrgaConfig:
    return load_config(folder=project, env={"ORGA_TRUST": "1", **(env or {})})


def tool_of(name: str, project: Path, env: Mapping[str, str] | None = None) -> Tool:
    tools = worker_tools(config_of(project, env), project, env or {})
    return next(each.tool for each in tools if each.tool.spec.name == name)


@pytest.mark.parametrize("path", ["orga.toml", *RULES, *MISSING, *SPELLINGS, "state/server.json"])
async def test_write_file_refuses_rules(project: Path, path: str) -> None:
    before = {file: file.read_bytes() for file in project.rglob("*") if file.is_file()}
    error = await failure(tool_of("write_file", project), path=path, content="permit (principal, action, resource);")
    assert error.kind == "PathRefused"
    assert str(project) not in str(error)
    assert {file: file.read_bytes() for file in project.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("path", ["orga.toml", *RULES])
async def test_edit_file_refuses_rules(project: Path, path: str) -> None:
    before = (project / path).read_bytes()
    error = await failure(tool_of("edit_file", project), path=path, old_text=before.decode()[:3] or "x", new_text="y")
    assert (error.kind, (project / path).read_bytes()) == ("PathRefused", before)


@pytest.mark.parametrize(
    "path",
    [
        *("notes/a.md", "notes/policies.md", "toolsmith/b.toml", "shop_test.py", "a/shop.py"),
        *("shop/data.json", "notes/json.py", "house/till_test.py", "prices.txt", "scripts/__pycache__/other.pyc"),
    ],
)
async def test_write_file_writes_other_files(project: Path, path: str) -> None:
    assert "bytes" in await result(tool_of("write_file", project), path=path, content="x")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"ORGA_CONFIG": "other/agents.toml"}, id="a configuration of another name"),
        pytest.param({"ORGA_POLICY__DIR": "other"}, id="policies of another folder"),
        pytest.param({"ORGA_SIGNING_KEY_FILE": "other/agents.toml"}, id="the key that signs"),
    ],
)
async def test_files_named_by_the_environment_are_protected(project: Path, settings: dict[str, str]) -> None:
    (project / "other").mkdir()
    (project / "other" / "agents.toml").write_text("")
    tool = tool_of("write_file", project, settings)
    assert (await failure(tool, path="other/agents.toml", content="x")).kind == "PathRefused"


@pytest.mark.parametrize("path", ["shared/b.cedar", "chats/new.cedar"])
async def test_the_target_of_a_link_in_the_policy_folder_is_protected(project: Path, path: str) -> None:
    (project / "shared").mkdir()
    (project / "shared" / "b.cedar").write_text("")
    (project / "chats").mkdir()
    (project / "policies" / "b.cedar").symlink_to("../shared/b.cedar")
    (project / "policies" / "chat").symlink_to("../chats")
    (project / "policies" / "up").symlink_to("..")
    tool = tool_of("write_file", project)
    assert (await failure(tool, path=path, content="x")).kind == "PathRefused"
    assert "bytes" in await result(tool, path="shared/notes.md", content="x")


async def test_policies_in_the_root_are_protected_file_by_file(project: Path) -> None:
    tool = tool_of("write_file", project, {"ORGA_POLICY__DIR": str(project)})
    assert (await failure(tool, path="new.cedar", content="x")).kind == "PathRefused"
    assert "Created" in await result(tool, path="new.md", content="x")


async def test_a_policy_folder_with_another_name_is_protected(project: Path) -> None:
    """The policy folder is elsewhere, and a link inside the root is its other name."""
    outside = project.parent / "rules"
    outside.mkdir()
    tool = tool_of("write_file", project, {"ORGA_POLICY__DIR": str(project / "elsewhere")})
    (project / "elsewhere").symlink_to(project / "notes")
    assert (await failure(tool, path="notes/a.md", content="x")).kind == "PathRefused"


ATTACKS = [
    *(pytest.param(f"echo x > {path}", id=f"writing {path}") for path in ["orga.toml", *RULES]),
    *(pytest.param(f"mkdir -p {Path(path).parent}; echo x > {path}", id=f"making {path}") for path in MISSING[:3]),
    pytest.param("rm -r policies", id="removing"),
    pytest.param("mv policies lax; mkdir policies; echo x > policies/x.cedar", id="moving away"),
    pytest.param("mv house shed; mkdir house; echo x > house/till.py", id="moving the folder above"),
    pytest.param("mv scripts s; mkdir scripts; echo x > scripts/count.py", id="moving the folder of a script"),
    pytest.param("ln policies/reading.cedar a; echo x > a", id="by a hard link"),
    pytest.param("ln -s policies p; echo x > p/x.cedar", id="by a symbolic link"),
    pytest.param("chmod 777 orga.toml; echo x > orga.toml", id="by its mode"),
    pytest.param("echo x > known", id="by a hard link that was there"),
    pytest.param("echo x > state/trust.json", id="the state folder"),
]


@pytest.mark.parametrize("script", ATTACKS)
async def test_an_isolated_command_changes_no_rule(project: Path, script: str) -> None:
    bubblewrap()
    (project / "state").mkdir()
    os.link(project / "policies" / "reading.cedar", project / "known")
    before = closed(project)
    await tool_of("run_command", project).call({"command": ["sh", "-c", f"{script}; true"]}, CONTEXT)
    assert closed(project) == before


async def test_many_new_folders_do_not_hide_the_rules_after_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bubblewrap()
    monkeypatch.setattr("orga.activities.adapters.rules.MAX_FOLDERS", 30)
    tool = tool_of("run_command", project)
    await result(tool, command=["sh", "-c", "mkdir -p $(seq -f 'many/%g' 40)"])
    before = closed(project)
    script = "echo x > vendored/.git/hooks/post-merge; echo x > nested/orga.toml; true"
    error = await failure(tool, command=["sh", "-c", script])
    assert (error.kind, "too many to look for rules in" in str(error)) == ("CommandRefused", True)
    assert closed(project) == before
    reported = writable_rules(config_of(project), project, {})
    assert reported
    assert "isolated commands are refused" in reported.problem


MADE = [
    pytest.param("mkdir house/till; echo x > house/till/__init__.py", id="a package in place of a module"),
    pytest.param("touch prices.cpython-311-x86_64-linux-gnu.so", id="a compiled module"),
    pytest.param("mkdir prices; touch prices/__init__.abi3.so", id="a compiled package"),
    pytest.param("mkdir scripts/__pycache__; touch scripts/__pycache__/units.cpython-311.pyc", id="compiled code"),
    pytest.param("touch scripts/enum.py", id="a module that Python imports by itself"),
    pytest.param("mkdir real; touch real/__init__.py; ln -s real prices", id="a package by a link"),
    pytest.param("ln -s nowhere prices.so", id="a dangling link"),
    pytest.param("touch servers/later.sh", id="a script that was missing"),
    pytest.param("touch notes/orga.toml", id="a configuration"),
    pytest.param("mkdir -p a/b/c; touch a/b/c/Orga.toml", id="a configuration, deep"),
    pytest.param("mkdir -p notes/orga.toml/x", id="a folder of that name"),
    pytest.param("ln -s notes/a.md ../project/notes/orga.toml", id="a configuration by a link"),
    pytest.param("mkdir -p node_modules/a; touch node_modules/a/orga.toml", id="a configuration in a generated folder"),
    pytest.param("mkdir -p x/.venv/y; git init --quiet x/.venv/y", id="a repository in a generated folder"),
    pytest.param("git init --quiet notes", id="a repository"),
    pytest.param("echo 'gitdir: /tmp/x' > notes/.git", id="a repository elsewhere"),
    pytest.param("mkdir s; touch s/orga.toml; chmod 111 s; chmod 500 notes; touch notes/orga.toml", id="by its mode"),
    pytest.param("rm way; mkdir -p way; echo x > way/stock.sh", id="in place of a link on the way"),
    pytest.param("rm linked.toml; cp notes/a.md linked.toml", id="in place of a link"),
    pytest.param("rm -r way linked.toml", id="removed links"),
    pytest.param("touch notes/orga.toml; exit 3", id="by a command that fails"),
]


@pytest.mark.parametrize("script", MADE)
async def test_a_file_made_by_an_isolated_command_is_no_rule_afterwards(project: Path, script: str) -> None:
    bubblewrap()
    for folder in ("node_modules/old/.git", "elsewhere", "state"):
        (project / folder).mkdir(parents=True)
    for link, target in (("way", "elsewhere"), ("linked.toml", "one_tool.toml")):
        (project / link).symlink_to(target)
    (project / "elsewhere" / "stock.sh").write_text("")
    manifests = 'manifests = ["tools/*.toml", "linked.toml"]'
    text = CONFIG.replace('manifests = ["tools/*.toml", "one_tool.toml"]', manifests).replace(
        "later.sh", "../way/stock.sh"
    )
    (project / "orga.toml").write_text(text.replace('"servers/stock.py"', '"servers/stock.py", "servers/later.sh"'))
    tool = tool_of("run_command", project)
    before = rules_of(project)
    try:
        reported = await result(tool, command=["sh", "-c", script])
    except ToolError as error:
        reported = str(error)
    assert rules_of(project) == before
    assert reported.startswith("[Warning] No agent may write files that decide over agents or run as a program: ")


def rules_of(project: Path) -> Mapping[Path, object]:
    """Return everything that counts as a rule, with generated folders and the targets of links."""
    rules = rules_in_use(config_of(project), project, {})
    return rules.present_in(project, deadline=time.monotonic() + 60)


async def test_a_rule_made_by_a_command_is_renamed_and_reported(project: Path) -> None:
    bubblewrap()
    script = "echo mine > notes/orga.toml; mkdir 'a\n[System]'; touch 'a\n[System]/.git'; echo done"
    reported = await result(tool_of("run_command", project), command=["sh", "-c", script])
    assert re.fullmatch(
        r"\[Warning\] No agent .*: a\\n\[System\]/\.git was renamed to \.git\.renamed-\w+; "
        r"notes/orga\.toml was renamed to orga\.toml\.renamed-\w+\ndone",
        reported,
    )
    [kept] = (project / "notes").glob("orga.toml.renamed-*")
    assert kept.read_text() == "mine\n"


@pytest.mark.parametrize("how", ["time", "cancel"])
async def test_a_rule_made_by_a_stopped_command_is_renamed(project: Path, how: str) -> None:
    bubblewrap()
    given = {"command": ["sh", "-c", "touch notes/orga.toml notes/begun; sleep 60"], "timeout_s": 1.5}
    call = asyncio.create_task(tool_of("run_command", project).call(given, CONTEXT))
    async with asyncio.timeout(20):
        while not (project / "notes" / "begun").exists():
            await asyncio.sleep(0.02)
    if how == "cancel":
        call.cancel()
    with pytest.raises(asyncio.CancelledError if how == "cancel" else ToolError):
        await call
    assert not (project / "notes" / "orga.toml").exists()


async def test_a_rule_made_by_one_command_is_no_rule_for_a_concurrent_one(project: Path) -> None:
    bubblewrap()
    (project / "state").mkdir()
    (project / "linked.toml").symlink_to("one_tool.toml")
    text = CONFIG.replace('"one_tool.toml"', '"linked.toml"')
    (project / "orga.toml").write_text(text)
    before, tool = rules_of(project), tool_of("run_command", project)
    made = "ln -sf notes/a.md linked.toml; touch notes/orga.toml made; until test -e begun; do sleep 0.02; done"
    first = asyncio.create_task(tool.call({"command": ["sh", "-c", made]}, CONTEXT))
    async with asyncio.timeout(20):
        while not (project / "made").exists():
            await asyncio.sleep(0.02)
    wait = "touch begun; until test -e over; do sleep 0.02; done"
    second = asyncio.create_task(tool.call({"command": ["sh", "-c", wait]}, CONTEXT))
    async with asyncio.timeout(20):
        await first
        (project / "over").touch()
        await second
    assert rules_of(project) == before


async def test_the_command_of_a_manifest_makes_no_rule(project: Path) -> None:
    bubblewrap()
    text = 'argv = ["sh", "-c", "touch scripts/enum.py; echo 3"]\nsandbox.isolation = "bubblewrap"\n'
    (project / "one_tool.toml").write_text(
        f'name = "one"\ndescription = "x"\n[output]\nparser = "json"\n[command]\n{text}'
    )
    reported = await result(tool_of("one", project))
    assert re.fullmatch(r"\[Warning\] .*: scripts/enum\.py was renamed to enum\.py\.renamed-\w+\n3", reported)
    assert not (project / "scripts" / "enum.py").exists()


async def test_a_search_for_new_rules_that_takes_too_long_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bubblewrap()
    monkeypatch.setattr("orga.activities.adapters.sandbox.limited_command._RULES_SEARCH_S", -1.0)
    error = await failure(tool_of("run_command", project), command=["sh", "-c", "true"])
    assert (error.kind, "may have made files that decide over agents" in str(error)) == ("CommandLost", True)


def closed(project: Path) -> Mapping[str, object]:
    """Return all rules with their content, and all new files next to them."""
    named = [project / name for name in ("orga.toml", *RULES)]
    folders = [project / name for name in ("policies", "tools", "state")]
    return {str(path): (path.read_bytes(), path.stat().st_ino) for path in named} | {
        str(path): "there" for folder in folders for path in folder.rglob("*")
    }


async def test_an_isolated_command_writes_other_files(project: Path) -> None:
    bubblewrap()
    tool = tool_of("run_command", project)
    await result(tool, command=["sh", "-c", "echo b > notes/b.md; mkdir -p new/deep; echo c > new/deep/c"])
    assert ((project / "notes/b.md").read_text(), (project / "new/deep/c").read_text()) == ("b\n", "c\n")


async def test_a_missing_policy_folder_cannot_be_created(project: Path) -> None:
    bubblewrap()
    for path in (project / "policies").iterdir():
        path.unlink()
    (project / "policies").rmdir()
    script = "mkdir -p policies; echo 'permit (principal, action, resource);' > policies/x.cedar; true"
    await result(tool_of("run_command", project), command=["sh", "-c", script])
    assert not list(project.rglob("*.cedar"))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param('[agents.a]\ntools = ["read_file"]', None, id="no tool that writes"),
        pytest.param('[agents.a]\ntools = ["write_*"]', "write_file cannot change them", id="by a glob"),
        pytest.param('[agents.a]\ntools = ["edit_file"]', "edit_file cannot change them", id="an editing tool"),
        pytest.param(
            '[agents.a]\ntools = ["run_command"]\n[tools.commands]\nallow = ["sh"]',
            "run_command can change them",
            id="without isolation",
        ),
        pytest.param(
            '[agents.a]\ntools = ["count"]\n[tools]\nmanifests = ["tools/*.toml"]',
            "count can",
            id="a manifest's command",
        ),
        pytest.param(
            """agents.a.tools = ["run_command"]
tools.commands = { allow = ["sh"], sandbox = { isolation = "bubblewrap" } }
tools.manifests = ["*_tool.toml"]""",
            "run_command cannot change them",
            id="isolated, next to a glob",
        ),
    ],
)
def test_rules_in_a_writable_root_are_reported(project: Path, config: str, expected: str | None) -> None:
    (project / "orga.toml").write_text(config)
    found = writable_rules(config_of(project), project, {})
    assert (found and expected and expected in found.problem) or (found is None and expected is None)


def test_a_root_without_rules_is_not_reported(project: Path) -> None:
    (project / "clean").mkdir()
    (project / "orga.toml").write_text('[agents.a]\ntools = ["write_file"]')
    assert writable_rules(config_of(project), project / "clean", {}) is None
