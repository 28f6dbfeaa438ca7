"""Secrets planted in the environment of a worker's adapters stay there: no history, log, span, journal or export."""

import json
from pathlib import Path

import pytest

from tests.support.chat_server import Calls, CallsAtOnce, Says, chat_server
from tests.support.orga_command import an_orga
from tests.support.otlp_receiver import otlp_receiver

NAMES = (
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "ANTHROPIC_API_KEY",
    "OLLAMA_API_KEY",
    "OPENAI_COMPATIBLE_API_KEY",
    "GITHUB_TOKEN",
    "OPA_TOKEN",
    "TOOL_PASSWORD",
)
SECRETS = {name: f"planted-{name.lower().replace('_', '-')}-7f3a91" for name in NAMES}
CANARY = "canary-that-a-tool-reads-55c2"
RUN = "agent-with-secrets"

CONFIG = """
[models]
default = "openai-compatible:m"
base_urls = {{ openai-compatible = "{chat}" }}

[agents.default]
tools = ["read_file", "run_command", "read_issue", "fetch_url"]

[agents.default.config]
timeout_s = 60
recovery = {{ strategy = "retry", max_attempts = 1 }}

[tools]
commands = {{ allow = ["env"] }}
web = {{ allow_hosts = ["127.0.0.1"] }}
github = {{ base_url = "{github}", repo = "acme/app" }}

[telemetry]
enabled = true
endpoint = "{collector}"
export_interval_s = 1
"""
REPLIES = (
    CallsAtOnce([Calls("read_file", {"path": "notes.md"}), Calls("run_command", {"command": ["env"]})]),
    CallsAtOnce([Calls("read_issue", {"reference": "#42"}), Calls("read_file", {"path": "/proc/self/environ"})]),
    Says(["done"]),
)


def leaks(*places: bytes) -> list[str]:
    return [name for name, secret in SECRETS.items() if any(secret.encode() in place for place in places)]


def test_no_planted_secret_leaves_the_environment(tmp_path: Path) -> None:
    """A file that a tool reads is found in the server's database: so a secret would be, too."""
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / "notes.md").write_text(CANARY)
    with chat_server(*REPLIES) as chat, otlp_receiver() as collector:
        address = chat.url.removesuffix("/v1")
        config = CONFIG.format(chat=chat.url, github=address, collector=collector.url)
        (folder / "orga.toml").write_text(config)
        orga = an_orga(folder, home, **SECRETS, ORGA_SIGNING_KEY_FILE=str(tmp_path / "signing.key"))
        assert orga("audit", "keygen", "--out", str(tmp_path / "signing.key")).code == 0
        ran = orga("run", "read the notes", "--id", RUN, "--json")
        shown = [
            ran,
            orga("journal", RUN, "--json"),
            orga("journal", RUN, "--export", "run.jsonl", "--sign"),
            orga("audit", RUN, "--all", "--json"),
            orga("verify", RUN),
            orga("conversation", RUN),
            orga("doctor"),
        ]
        orga("server", "--stop")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["termination"]["reason"] == "completed"
    asked = [json.dumps(request) for request in chat.requests]
    files = [path.read_bytes() for place in (folder, home) for path in place.rglob("*") if path.is_file()]
    said = [text.encode() for done in shown for text in (done.out, done.err)]
    told = [body for _, body in collector.bodies]

    assert any(CANARY.encode() in file for file in files[1:])
    assert told
    assert leaks(*files, *said, *told, *(text.encode() for text in asked)) == []
    private = "".join((tmp_path / "signing.key").read_text().splitlines()[1:-1])
    assert not any(private.encode() in place for place in (*files, *said, *told))


@pytest.mark.parametrize("name", NAMES)
def test_the_scan_would_find_each_of_them(name: str) -> None:
    assert leaks(b"before", f'{{"{name}": "{SECRETS[name]}"}}'.encode()) == [name]
