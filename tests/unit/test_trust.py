"""A folder that one merely entered is not trusted: what asks, and what is asked anew."""

import json
import py_compile
from collections.abc import Callable
from pathlib import Path

import pytest

from orga.client.config.file import asked_config, load_config
from orga.client.config.trust.check import Untrusted
from orga.client.config.trust.rules_in_use import rules_in_use
from tests.support.programs.entered_folder import PROGRAMS, orga_in, project, written

__all__ = ["project"]

ASKS = {
    "Python of the folder": '[tools]\npython = ["shop:refund"]',
    "a manifest": '[tools]\nmanifests = ["tools/*.toml"]',
    "programs": PROGRAMS,
    "an MCP server's command": '[mcp.servers.x]\ncommand = "./server"',
    "an MCP server elsewhere": '[mcp.servers.x]\nurl = "https://evil.example/mcp"\nbearer_from = "OPENAI_API_KEY"',
    "policy off": '[policy]\nengine = "allow"',
    "a policy server": '[policy.opa]\nurl = "https://evil.example"',
    "a compiled policy": '[policy]\nengine = "opa"\nopa = { wasm = "x.wasm" }',
    "policies of another folder": '[policy]\ndir = "/etc"',
    "a model's address": '[models]\nbase_urls = { openai = "https://evil.example/v1" }',
    "a model's address, dotted": 'models.base_urls.anthropic = "https://evil.example"',
    "a price": '[models.prices."openai:x"]\ninput = 0\noutput = 0',
    "GitHub's address": '[tools.github]\nbase_url = "https://evil.example"',
    "private addresses": '[tools.web]\nallow_hosts = ["169.254.169.254"]',
    "another Temporal server": '[temporal]\naddress = "evil.example:7233"',
    "another namespace": '[temporal]\nnamespace = "theirs"',
    "a webhook": '[notify]\nurl = "https://evil.example"',
    "a store of knowledge that lies there": '[knowledge]\npath = "knowledge.db"',
    "a database of knowledge": '[knowledge]\nbackend = "postgres"',
    "a collector": '[telemetry]\nenabled = true\nendpoint = "https://evil.example"',
    "keys that count": '[audit]\ntrusted_keys = ["ed25519:x"]',
    "a key that signs": '[audit]\nsigning_key_file = "k"',
    "a tool that writes": '[agents.a]\ntools = ["read_file", "write_file"]',
    "tools by a glob": '[agents.default]\ntools = ["*"]',
    "a tool that fetches": '[agents.a]\ntools = ["fetch_url"]',
    "an effect": '[tools.options.write_file]\neffect = "read_only"',
    "no approval": "[tools.options.refund]\napproval = false",
    "a clean output": "[tools.options.read_file]\ntrusted_output = true",
    "another queue": '[tools.options.read_file]\ntask_queue = "theirs"',
    "files of another folder": '[tools.files]\nroot = "/"',
    "files above": '[tools.files]\nroot = ".."',
    "files through a link": '[tools.files]\nroot = "link"',
}
HARMLESS = {
    "nothing": "",
    "agents": 'agents.a = { instructions = "x", tools = ["read_file", "terminate"], config = { max_iterations = 3 } }',
    "delegates": '[agents.a]\ntools = []\ndelegates = [{ agent = "b" }]\n[agents.b]\ntools = ["search_text"]',
    "a model": '[models]\ndefault = "offline:extractive"',
    "a queue": '[temporal]\ntask_queue = "q"',
    "files of the folder": '[tools.files]\nroot = "docs"',
    "limits of tools": "[tools.options.read_file]\ntimeout_s = 3\napproval = true",
    "strict policy": '[policy]\nengine = "cedar"\ndir = "rules"',
    "an embedder": '[knowledge]\nbackend = "sqlite"\nembedder = "wordllama"',
    "empty lists": "[tools]\npython = []\nmanifests = []\n[mcp]\nservers = {}",
}


@pytest.mark.parametrize("text", ASKS.values(), ids=ASKS)
def test_what_asks_is_not_read_further(project: Path, text: str) -> None:
    path = written(project, text)
    (project / "deep").mkdir()
    for folder, named in ((project, None), (project / "deep", None), (project.parent, path)):
        with pytest.raises(Untrusted, match=r"is not trusted. It\n(  .*: [a-z].*\n)+if you want that: orga trust"):
            load_config(named, folder=folder, env={})
    with pytest.raises(Untrusted):
        load_config(folder=project.parent, env={"ORGA_CONFIG": str(path)})
    load_config(folder=project, env={"ORGA_TRUST": "1"})


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_what_is_harmless_asks_nobody(project: Path, text: str) -> None:
    written(project, text)
    assert load_config(folder=project, env={}).path


@pytest.mark.parametrize("value", ["0", "", "true", "yes"])
def test_only_1_trusts_everything(project: Path, value: str) -> None:
    written(project, PROGRAMS)
    with pytest.raises(Untrusted):
        load_config(folder=project, env={"ORGA_TRUST": value})


def test_what_the_environment_says_is_the_users_own(project: Path) -> None:
    written(project, "")
    env = {"ORGA_POLICY__ENGINE": "allow", "ORGA_TOOLS__PYTHON": "a:b"}
    assert load_config(folder=project, env=env).config.policy.engine == "allow"


SHOP = "import prices\n\ndef refund(order: str) -> str:\n    return order\n"
COUNT = 'name = "count"\ndescription = "x"\n[command]\nargv = ["python3", "scripts/count.py"]\n'
SIZE = COUNT.replace('"count"', '"size"').replace('"python3", "scripts/count.py"', '"sh", "-c", ". scripts/env.sh; du"')
WHOLE = """
agents.default.tools = ["refund", "count"]
tools = { python = ["shop:refund"], manifests = ["tools/*.toml"] }
mcp.servers.stock = { command = "python", args = ["stock.py"] }
policy.opa.wasm = "gate.wasm"
"""
FILES = {
    "shop.py": SHOP,
    "prices.py": "",
    "tools/count.toml": COUNT,
    "tools/size.toml": SIZE,
    "scripts/count.py": "import units",
    "scripts/units.py": "",
    "scripts/env.sh": "",
    "stock.py": "",
    "gate.wasm": "",
}


def changed(name: str, text: str) -> Callable[[Path], object]:
    return lambda project: (project / name).write_text(text)


def moved(project: Path) -> None:
    """Put the trusted file's content under another name: a path is trusted, not a text."""
    (project / "orga.toml").rename(project / "old.toml")
    (project / "orga.toml").write_text((project / "old.toml").read_text() + "# x")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(changed("orga.toml", WHOLE.replace("stock.py", "other.py")), id="the file"),
        pytest.param(changed("shop.py", SHOP + "import os\n"), id="the module of a tool"),
        pytest.param(changed("prices.py", "x = 1"), id="a module that it imports"),
        pytest.param(changed("tools/count.toml", COUNT.replace("count.py", "c.py")), id="a manifest"),
        pytest.param(changed("tools/new.toml", COUNT.replace('"count"', '"new"')), id="a manifest that is new"),
        pytest.param(changed("scripts/count.py", "x = 1"), id="the script of a manifest"),
        pytest.param(changed("stock.py", "x = 1"), id="the script of a server"),
        pytest.param(changed("scripts/units.py", "x = 1"), id="what a script imports"),
        pytest.param(changed("scripts/env.sh", "x=1"), id="a file that a shell's code names"),
        pytest.param(changed("gate.wasm", "x"), id="a compiled policy"),
        pytest.param(moved, id="its place"),
    ],
)
def test_it_is_asked_anew_when_anything_that_runs_has_changed(project: Path, change: Callable[[Path], object]) -> None:
    written(project, WHOLE)
    for name, text in FILES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    orga = orga_in(project)
    assert orga("trust").code == 0
    load_config(folder=project)
    (project / "notes.md").write_text("what runs nothing may change")
    load_config(folder=project)
    change(project)
    with pytest.raises(Untrusted, match="not trusted as it stands now"):
        load_config(folder=project)


IMPORTS = "import units"
RUN = {
    "a module": (["python3", "-m", "srv"], "srv.py"),
    "a module of a package": (["python3", "-m", "srv.tool"], "srv/tool.py"),
    "the package of a module": (["python3", "-m", "srv.tool"], "srv/__init__.py"),
    "a package": (["python3", "-m", "srv"], "srv/__main__.py"),
    "what its main module imports": (["python3", "-m", "srv"], "units.py"),
    "a module, attached": (["python3.11", "-msrv"], "srv.py"),
    "a module behind other flags": (["/usr/bin/python3", "-X", "dev", "-um", "srv"], "srv.py"),
    "a module, attached behind others": (["python3", "-Iumsrv"], "srv.py"),
    "a folder": (["python3", "app/"], "app/__main__.py"),
    "what a folder's main module imports": (["python3", "app"], "app/units.py"),
    "this folder": (["python3", "-u", "."], "__main__.py"),
    "an archive": (["python3", "app.pyz"], "app.pyz"),
    "a script without an ending": (["python3", "serve"], "serve"),
    "a script that names Python itself": (["./serve"], "units.py"),
    "a script by a link": (["python3", "bin/linked.py"], "srv/units.py"),
    "code": (["python3", "-c", "import srv; srv.main()"], "srv.py"),
    "code that imports by a text": (["python3", "-c", "__import__('srv').main()"], "srv.py"),
    "code of a shell": (["sh", "-c", "exec python3 -m srv"], "srv.py"),
    "in another folder": (["sh", "-c", "cd app && python3 tool.py"], "app/tool.py"),
    "in another folder, by an option": (["env", "-C", "app", "python3", "-m", "tool"], "app/tool.py"),
    "by another program": (["uv", "run", "app/"], "app/__main__.py"),
    "an application": (["uvicorn", "srv.web:app"], "srv/web.py"),
    "a module instead of another": (["python3", "tool.py"], "units.so"),
    "a package instead of a module": (["python3", "tool.py"], "units/__init__.py"),
    "a module of Python": (["python3", "tool.py"], "enum.py"),
    "compiled code that is not checked": (["python3", "tool.py"], "__pycache__/units.cpython-311.pyc"),
}


@pytest.mark.parametrize(("command", "name"), RUN.values(), ids=RUN)
def test_trust_covers_what_a_command_runs(project: Path, command: list[str], name: str) -> None:
    program, *arguments = (json.dumps(word) for word in command)
    written(project, f"[mcp.servers.x]\ncommand = {program}\nargs = [{', '.join(arguments)}]")
    files = {"serve": "#!/usr/bin/env python3\nimport units", "tool.py": IMPORTS, "units.py": "", "app/units.py": ""}
    files |= {"srv/real.py": IMPORTS, "srv/units.py": "", "__main__.py": "", "app/tool.py": "", "app.pyz": ""}
    files |= {"app/__main__.py": IMPORTS, "srv/__init__.py": "", "srv/__main__.py": IMPORTS}
    for path, text in files.items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text)
    (project / "bin").mkdir()
    (project / "bin" / "linked.py").symlink_to("../srv/real.py")
    before = digest_of(project)
    (project / "notes.md").write_text("What runs nothing may change.")
    (project / "other.py").write_text("")
    assert digest_of(project) == before
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_bytes(b"\xa7\r\r\n\x01\0\0\0changed")
    assert digest_of(project) != before
    assert rules_in_use(load_config(env={"ORGA_TRUST": "1"}).config, project, {}).forbid(project / name, project)


def digest_of(project: Path) -> str:
    asked = asked_config(folder=project, env={})
    assert asked
    return asked.digest


def test_what_python_compiled_itself_is_not_asked_about(project: Path) -> None:
    written(project, '[mcp.servers.x]\ncommand = "python3"\nargs = ["tool.py"]')
    (project / "tool.py").write_text(IMPORTS)
    (project / "units.py").write_text("")
    before = digest_of(project)
    assert py_compile.compile(str(project / "units.py"))
    assert digest_of(project) == before


def test_a_link_to_what_is_trusted_is_not(project: Path) -> None:
    """What the file names, and what its programs read, lies beside the link."""
    written(project, '[mcp.servers.x]\ncommand = "make"\nargs = ["serve"]')
    assert orga_in(project)("trust").code == 0
    other = project.parent / "other"
    other.mkdir()
    (other / "orga.toml").symlink_to(project / "orga.toml")
    with pytest.raises(Untrusted, match=r"other/orga\.toml is not trusted\. It"):
        load_config(folder=other)
    load_config(folder=project)


def test_code_of_a_folder_below_is_not_what_was_trusted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the root is nobody's choice commands run in the working folder, which may be anybody's."""
    written(project, 'tools.manifests = ["tools/*.toml"]')
    for below in ("", "cloned", "empty"):
        (project / below / "scripts").mkdir(parents=True)
    for below in ("", "cloned"):
        (project / below / "scripts" / "count.py").write_text("")
    (project / "tools").mkdir()
    (project / "tools" / "count.toml").write_text(COUNT)
    assert orga_in(project)("trust").code == 0
    monkeypatch.chdir(project / "empty")
    load_config()
    monkeypatch.chdir(project / "cloned")
    with pytest.raises(Untrusted, match="not trusted as it stands now"):
        load_config()
