"""A folder that was only entered is not trusted: which settings need trust, and when it is needed again."""

import json
import py_compile
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orga.client.config.file import load_config, read_config
from orga.client.config.trust.check import Untrusted
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.start import module_command
from tests.support.programs.entered_folder import PROGRAMS, orga_in, project, write_config

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
    "a header of models": 'models.endpoints.openai.headers_from.x-a = "HOME"',
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
def test_a_file_that_needs_trust_is_not_used_without_it(project: Path, text: str) -> None:
    path = write_config(project, text)
    (project / "deep").mkdir()
    for folder, named in ((project, None), (project / "deep", None), (project.parent, path)):
        with pytest.raises(Untrusted, match=r"is not trusted. It\n(  .*: [a-z].*\n)+if you want that: orga trust"):
            load_config(named, folder=folder, env={})
    with pytest.raises(Untrusted):
        load_config(folder=project.parent, env={"ORGA_CONFIG": str(path)})
    load_config(folder=project, env={"ORGA_TRUST": "1"})


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_a_harmless_file_needs_no_trust(project: Path, text: str) -> None:
    write_config(project, text)
    assert load_config(folder=project, env={}).file


OPA = {"ORGA_POLICY__OPA__URL": "https://opa.example"}
MODEL = {"ORGA_MODELS__DEFAULT": "ollama:qwen3:4b"}
OPS = {"ORGA_AGENTS__OPS__TOOLS": "read_file,run_command"}
COMMANDS = {"ORGA_TOOLS__COMMANDS__ALLOW": "git"}
NOTIFIED = {"ORGA_NOTIFY__URL": "https://pager.example"}
STORE = {"ORGA_KNOWLEDGE__BACKEND": "postgres"}
SERVER = {"TEMPORAL_ADDRESS": "temporal.example:7233"}
ASKS_BESIDE: dict[str, tuple[dict[str, str], str, str]] = {
    "policy of the tools": (OPA, '[policy]\nengine = "default"', "ORGA_POLICY__OPA__URL"),
    "policy of the folder": (OPA, '[policy]\nengine = "cedar"\ndir = "lax"', "ORGA_POLICY__OPA__URL"),
    "another rule": (OPA, '[policy.opa]\npath = "all/yes"', "ORGA_POLICY__OPA__URL"),
    "another surface": ({"ORGA_POLICY__DIR": "/etc/rules"}, '[policy]\nsurface = "lax"', "ORGA_POLICY__DIR"),
    "time for policy": ({"OPA_TOKEN": "t"}, "[policy.opa]\ntimeout_s = 0.001", "OPA_TOKEN"),
    "a network": (COMMANDS, "[tools.commands.sandbox]\nnetwork = true", ""),
    "no isolation": (COMMANDS, '[tools.commands.sandbox]\nisolation = "none"', "ORGA_TOOLS__COMMANDS__ALLOW"),
    "limits of commands": (COMMANDS, "[tools.commands.sandbox.limits]\nprocesses = 9_999", "ORGA_TOOLS__COMMANDS"),
    "how a tool fails": (COMMANDS, '[tools.options.x]\nrecovery = { strategy = "retry" }', "ORGA_TOOLS__COMMANDS"),
    "what a tier stands for": (MODEL, '[models.tiers]\nlight = ["openai:x"]', "ORGA_MODELS__DEFAULT"),
    "what a tier at home is": ({}, '[models.tiers]\nlocal = ["ollama:a", "openai:b"]', ""),
    "what a tier is that the user names": (
        {"ORGA_AGENTS__OPS__MODEL": "tier:heavy"},
        '[models.tiers]\nheavy = ["openai:x"]',
        "ORGA_AGENTS__OPS__MODEL",
    ),
    "an agent's model": ({"ANTHROPIC_MODEL": "claude-x"}, '[agents.a]\nmodel = "openai:x"', "ANTHROPIC_MODEL"),
    "a critic's model": (
        MODEL,
        '[[agents.a.critics]]\nname = "c"\nmodel = "openai:x"\nrubric = { a = { weight = 1 } }',
        "ORGA_MODELS__DEFAULT",
    ),
    "a model beside its server": ({"OPENAI_BASE_URL": "http://127.0.0.1/v1"}, '[models]\ndefault = "anthropic:x"', ""),
    "turns of goals": (MODEL, '[goals.tiers]\nplan = "heavy"', "ORGA_MODELS__DEFAULT"),
    "an embedder": (MODEL, '[knowledge]\nembedder = "openai:text-embedding-3-small"', "ORGA_MODELS__DEFAULT"),
    "a circuit": ({"ORGA_MODELS__BREAKER__ENABLED": "true"}, "[models.breaker]\nrecovery_s = 1", "ORGA_MODELS__"),
    "a delegate that does more": (OPS, '[agents.default]\ndelegates = [{ agent = "ops" }]', "ORGA_AGENTS__OPS__TOOLS"),
    "a delegate that nobody reviews": (
        {"ORGA_AGENTS__DEFAULT__CRITICS": '[{"name": "c", "person": {}}]'},
        '[agents.default]\ndelegates = [{ agent = "a" }]\n[agents.a]\ntools = ["read_file"]',
        "ORGA_AGENTS__DEFAULT__CRITICS",
    ),
    "a step that does more": (
        OPS,
        '[pipelines.x]\nkind = "chain"\nsteps = [{ agent = "ops" }, { agent = "ops" }]',
        "ORGA_AGENTS__OPS__TOOLS",
    ),
    "what such an agent is told": (OPS, '[agents.ops]\ninstructions = "Remove it."', "ORGA_AGENTS__OPS__TOOLS"),
    "what such an agent is told of another": (OPS, '[agents.a]\ndescription = "Ask it."', "ORGA_AGENTS__OPS__TOOLS"),
    "limits of such an agent": (OPS, "[agents.ops.config]\nmax_iterations = 999", "ORGA_AGENTS__OPS__TOOLS"),
    "critics of such an agent": (OPS, '[[agents.ops.critics]]\nname = "c"\nperson = {}', "ORGA_AGENTS__OPS__TOOLS"),
    "decisions of such an agent": (
        OPS,
        '[agents.ops.decisions.d]\nfields = { a = { type = "boolean" } }\nrules = []\ndefault = { b = 1 }',
        "ORGA_AGENTS__OPS__TOOLS",
    ),
    "prompts of goals": (
        OPS,
        '[goals.prompts]\ndecision = "{{ goal }}{{ this_round }}{{ open_steps }}{{ answer_form }}"',
        "ORGA_AGENTS__OPS__TOOLS",
    ),
    "a repository": (OPS, '[tools.github]\nrepo = "a/b"', "ORGA_AGENTS__OPS__TOOLS"),
    "an agent as one table": (
        {"ORGA_AGENTS__OPS": '{"tools": ["write_file"]}'},
        '[agents.default]\ndelegates = [{ agent = "ops" }]',
        "ORGA_AGENTS__OPS",
    ),
    "what is notified": (NOTIFIED, '[notify]\nevents = ["ended"]', "ORGA_NOTIFY__URL"),
    "how it is notified": ({"ORGA_NOTIFY_SECRET": "s"}, '[notify]\nformat = "slack"', "ORGA_NOTIFY_SECRET"),
    "what is stored": (STORE, "[agents.default.config]\nknowledge = {}", "ORGA_KNOWLEDGE__BACKEND"),
    "what is measured": ({"OTEL_EXPORTER_OTLP_HEADERS": "k=v"}, "[telemetry]\nenabled = true", "OTEL_"),
    "a name in another case": (
        {"ORGA_TOOLS__OPTIONS__REFUND__APPROVAL": "true"},
        "[tools.options.Refund]\napproval = true",
        "ORGA_TOOLS__OPTIONS__REFUND__APPROVAL",
    ),
    "an agent in another case": (
        {"ORGA_AGENTS__DEFAULT__CONFIG__MAX_COST_USD": "1"},
        "[agents.Default.config]\nmax_iterations = 3",
        "ORGA_AGENTS__DEFAULT__CONFIG__MAX_COST_USD",
    ),
    "a queue of a server": (SERVER, '[temporal]\ntask_queue = "orga"', "TEMPORAL_ADDRESS"),
    "a queue of a server of ours": (
        {"ORGA_TEMPORAL__ADDRESS": "a:1"},
        '[temporal]\ntask_queue = "q"',
        "ORGA_TEMPORAL__ADDRESS",
    ),
    "the size of others' runs": (SERVER, "[temporal]\nroll_over_events = 20", "TEMPORAL_ADDRESS"),
    "policy of others' runs": (SERVER, '[policy]\nengine = "default"', "TEMPORAL_ADDRESS"),
    "what others' agents are told": (SERVER, '[agents.default]\ninstructions = "x"', "TEMPORAL_ADDRESS"),
}


@pytest.mark.parametrize(("env", "text", "expected"), ASKS_BESIDE.values(), ids=ASKS_BESIDE)
def test_a_file_that_overrides_the_users_settings_needs_trust(
    project: Path, env: dict[str, str], text: str, expected: str
) -> None:
    write_config(project, text)
    with pytest.raises(Untrusted, match=re.escape(f"(you have set {expected}") if expected else "is not trusted"):
        load_config(folder=project, env=env)
    load_config(folder=project, env=env | {"ORGA_TRUST": "1"})


def test_on_a_server_the_reason_for_trust_names_its_runs(project: Path) -> None:
    write_config(project, '[agents.default]\ntools = ["read_file"]')
    with pytest.raises(Untrusted, match=r'tools = \["read_file"\]: holds for all runs of that server'):
        load_config(folder=project, env=SERVER)


HARMLESS_BESIDE: dict[str, tuple[dict[str, str], str]] = {
    "limits of an agent": ({**MODEL, **COMMANDS}, "[agents.default.config]\nmax_iterations = 3"),
    "an agent that reads": (OPS, '[agents.a]\ntools = ["read_file"]'),
    "stricter commands": (COMMANDS, '[tools.commands.sandbox]\nisolation = "bubblewrap"\nnetwork = false'),
    "approval": ({**OPS, **COMMANDS}, "[tools.options.run_command]\napproval = true"),
    "what is set otherwise": (
        {"ORGA_AGENTS__DEFAULT__CONFIG__MAX_COST_USD": "1"},
        '[agents.default]\nmodel = "openai:x"',
    ),
    "a key": (
        {"OPENAI_API_KEY": "k", "OLLAMA_HOST": "h"},
        '[models]\ndefault = "ollama:x"\ntiers.local = ["ollama:x"]',
    ),
    "a root": ({"ORGA_TOOLS__FILES__ROOT": "docs"}, "[tools.options.read_file]\ntimeout_s = 3"),
    "nothing on a server": (SERVER, "[agents]"),
}


@pytest.mark.parametrize(("env", "text"), HARMLESS_BESIDE.values(), ids=HARMLESS_BESIDE)
def test_a_file_that_overrides_nothing_needs_no_trust(project: Path, env: dict[str, str], text: str) -> None:
    (project / "docs").mkdir()
    write_config(project, text)
    assert load_config(folder=project, env=env).file


@pytest.mark.parametrize("text", [None, "", '[agents.a]\ntools = ["read_file"]'], ids=["no file", "a file", "an agent"])
@pytest.mark.parametrize("env", [OPA, SERVER, {"ORGA_POLICY__ENGINE": "cedar"}], ids=["OPA", "a server", "Cedar"])
def test_policies_that_replace_others_need_trust(project: Path, env: dict[str, str], text: str | None) -> None:
    (project / "policies" / "chat").mkdir(parents=True)
    (project / "policies" / "chat" / "all.cedar").write_text("permit (principal, action, resource);")
    named = project / "policies" if text is None else write_config(project, text)
    with pytest.raises(Untrusted, match=r'policies = ".*/policies": (decides|judges)') as raised:
        load_config(folder=project, env=env)
    assert str(raised.value).endswith(f"orga trust {named}")
    if text != "[agents.a]" and env is not SERVER:
        load_config(folder=project, env={})
        load_config(folder=project, env={**env, "ORGA_POLICY__ENGINE": "default"})
    assert orga_in(project, **env)("trust", str(named)).code == 0
    assert load_config(folder=project, env=env).policy.dir == project / "policies"
    (project / "policies" / "more.cedar").write_text("")
    load_config(folder=project, env=env)
    assert orga_in(project, **env)("trust", "--revoke", str(named)).code == 0
    with pytest.raises(Untrusted):
        load_config(folder=project, env=env)


def test_a_file_that_hides_another_needs_trust(project: Path) -> None:
    """The other may be the user's own, and stricter."""
    above = write_config(project.parent, '[policy]\nengine = "cedar"')
    load_config(folder=project, env={})
    path = write_config(project, "[agents.default.config]\nmax_iterations = 3")
    with pytest.raises(Untrusted, match=re.escape(f'orga.toml = "{above}": no longer holds here')):
        load_config(folder=project, env={})
    load_config(path, folder=project.parent, env={})
    load_config(folder=project, env={"ORGA_CONFIG": str(path)})
    above.unlink()
    load_config(folder=project, env={})


def test_a_server_of_temporals_profile_counts_as_the_users_setting(project: Path) -> None:
    profile = project.parent / "temporal.toml"
    profile.write_text('[profile.default]\naddress = "temporal.example:7233"\n')
    write_config(project, '[temporal]\ntask_queue = "q"')
    load_config(folder=project, env={})
    with pytest.raises(Untrusted, match="you have set Temporal's profile"):
        load_config(folder=project, env={"TEMPORAL_CONFIG_FILE": str(profile)})


def test_a_worker_with_a_server_as_an_option_also_needs_trust(project: Path) -> None:
    write_config(project, '[temporal]\ntask_queue = "q"')
    command, env = module_command("orga.worker", "--check", "--address", "temporal.example:7233"), orga_in(project).env
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "temporal.task_queue" in done.stderr, done.stdout) == (2, True, "")


@pytest.mark.parametrize("value", ["0", "", "true", "yes"])
def test_only_1_trusts_everything(project: Path, value: str) -> None:
    write_config(project, PROGRAMS)
    with pytest.raises(Untrusted):
        load_config(folder=project, env={"ORGA_TRUST": value})


def test_settings_of_the_environment_are_the_users_own(project: Path) -> None:
    write_config(project, "")
    env = {"ORGA_POLICY__ENGINE": "allow", "ORGA_TOOLS__PYTHON": "a:b"}
    assert load_config(folder=project, env=env).policy.engine == "allow"


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
    """Move the content of the trusted file to another name: trust belongs to a path, not to a text."""
    (project / "orga.toml").rename(project / "old.toml")
    (project / "orga.toml").write_text((project / "old.toml").read_text() + "# x")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(changed("orga.toml", WHOLE.replace("stock.py", "other.py")), id="the file"),
        pytest.param(changed("shop.py", SHOP + "import os\n"), id="the module of a tool"),
        pytest.param(changed("prices.py", "x = 1"), id="a module that it imports"),
        pytest.param(changed("tools/count.toml", COUNT.replace("count.py", "c.py")), id="a manifest"),
        pytest.param(changed("tools/new.toml", COUNT.replace('"count"', '"new"')), id="a new manifest"),
        pytest.param(changed("scripts/count.py", "x = 1"), id="the script of a manifest"),
        pytest.param(changed("stock.py", "x = 1"), id="the script of a server"),
        pytest.param(changed("scripts/units.py", "x = 1"), id="a module that a script imports"),
        pytest.param(changed("scripts/env.sh", "x=1"), id="a file named in the code of a shell"),
        pytest.param(changed("gate.wasm", "x"), id="a compiled policy"),
        pytest.param(moved, id="its place"),
    ],
)
def test_a_change_of_anything_that_runs_needs_trust_again(project: Path, change: Callable[[Path], object]) -> None:
    write_config(project, WHOLE)
    for name, text in FILES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    orga = orga_in(project)
    assert orga("trust").code == 0
    load_config(folder=project)
    (project / "notes.md").write_text("what runs nothing may change")
    load_config(folder=project)
    change(project)
    with pytest.raises(Untrusted, match="not trusted in its present form"):
        load_config(folder=project)


IMPORTS = "import units"
SETS = "export PYTHONPATH=app\nexec python3 -m srv\n"
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
    "behind options of another program": (["uv", "run", "--with", "mcp", "app/"], "app/__main__.py"),
    "what a script of a shell starts": (["./start"], "srv/real.py"),
    "what a script of a shell starts beside it": (["sh", "bin/beside.sh"], "bin/tool.py"),
    "what a script that a script starts imports": (["bash", "first.sh"], "srv/units.py"),
    "an application": (["uvicorn", "srv.web:app"], "srv/web.py"),
    "a module instead of another": (["python3", "tool.py"], "units.so"),
    "a package instead of a module": (["python3", "tool.py"], "units/__init__.py"),
    "a module of Python": (["python3", "tool.py"], "enum.py"),
    "what Python is given without an ending": (["sh", "-c", "python3 < plain"], "units.py"),
    "a script of a newer Python": (["python3.13t", "newer.py"], "units.py"),
    "a script that is too large to parse": (["python3", "large.py"], "units.py"),
    "what a variable of the command leads to": (["env", "PYTHONPATH=app", "python3", "tool.py"], "app/units.py"),
    "what a variable of a shell leads to": (["sh", "-c", "PYTHONPATH=app:x python3 -m tool"], "app/tool.py"),
    "what a variable of a script leads to": (["./set.sh"], "app/units.py"),
    "compiled code that is not checked": (["python3", "tool.py"], "__pycache__/units.cpython-311.pyc"),
}


@pytest.mark.parametrize(("command", "name"), RUN.values(), ids=RUN)
def test_trust_covers_everything_that_a_command_runs(project: Path, command: list[str], name: str) -> None:
    program, *arguments = (json.dumps(word) for word in command)
    write_config(project, f"[mcp.servers.x]\ncommand = {program}\nargs = [{', '.join(arguments)}]")
    files = {"serve": "#!/usr/bin/env python3\nimport units", "tool.py": IMPORTS, "units.py": "", "app/units.py": ""}
    files |= {"srv/real.py": IMPORTS, "srv/units.py": "", "__main__.py": "", "app/tool.py": "", "app.pyz": ""}
    files |= {"start": "#!/usr/bin/env bash\nexec python3 -u srv/real.py", "first.sh": ". ./start"}
    files |= {"bin/beside.sh": 'exec python3 "$(dirname "$0")/tool.py"', "bin/tool.py": ""}
    files |= {"app/__main__.py": IMPORTS, "srv/__init__.py": "", "srv/__main__.py": IMPORTS}
    files |= {"plain": IMPORTS, "newer.py": "type A = int\nfrom \\\n  units import (\n a)", "set.sh": SETS}
    files |= {"large.py": f"{IMPORTS}\n#{'x' * 2_000_000}"}
    for path, text in files.items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text)
    (project / "bin" / "linked.py").symlink_to("../srv/real.py")
    before = digest_of(project)
    (project / "notes.md").write_text("What runs nothing may change.")
    (project / "other.py").write_text("")
    assert digest_of(project) == before
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_bytes(b"\xa7\r\r\n\x01\0\0\0changed")
    assert digest_of(project) != before
    assert rules_in_use(load_config(env={"ORGA_TRUST": "1"}), project, {}).is_forbidden(project / name, project)


def digest_of(project: Path) -> str:
    asked = read_config(folder=project, env={}).trust_request()
    assert asked
    return asked.digest


def test_files_compiled_by_python_itself_need_no_trust(project: Path) -> None:
    write_config(project, '[mcp.servers.x]\ncommand = "python3"\nargs = ["tool.py"]')
    (project / "tool.py").write_text(IMPORTS)
    (project / "units.py").write_text("")
    before = digest_of(project)
    assert py_compile.compile(str(project / "units.py"))
    assert digest_of(project) == before


def test_a_link_to_a_trusted_file_is_not_trusted(project: Path) -> None:
    """The programs and files that the configuration names are next to the link, not next to its target."""
    write_config(project, '[mcp.servers.x]\ncommand = "make"\nargs = ["serve"]')
    assert orga_in(project)("trust").code == 0
    other = project.parent / "other"
    other.mkdir()
    (other / "orga.toml").symlink_to(project / "orga.toml")
    with pytest.raises(Untrusted, match=r"other/orga\.toml is not trusted\. It"):
        load_config(folder=other)
    load_config(folder=project)


def test_code_of_a_subfolder_is_not_covered_by_trust(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a configured root, commands run in the working folder, which may belong to anybody."""
    write_config(project, 'tools.manifests = ["tools/*.toml"]')
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
    with pytest.raises(Untrusted, match="not trusted in its present form"):
        load_config()
