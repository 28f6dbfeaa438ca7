"""aimock, a third-party server that speaks the providers' protocols: installed once, started on a free port."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orga.activities.adapters import http

VERSION = "1.43.0"
_CACHE = Path(__file__).parents[3] / ".cache" / f"aimock-{VERSION}"
_PROGRAM = Path("node_modules/@copilotkit/aimock/dist/cli.js")


@dataclass(frozen=True)
class Aimock:
    """A running server."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make this server the provider of every remote model."""
        return {
            "OPENAI_API_KEY": "k",
            "ANTHROPIC_API_KEY": "k",
            "OPENROUTER_API_KEY": "k",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "ANTHROPIC_BASE_URL": self.url,
            "OPENROUTER_BASE_URL": f"{self.url}/api/v1",
            "OLLAMA_HOST": self.url,
        }

    async def requests(self, model: str) -> list[dict[str, Any]]:
        """Return the bodies of the requests for `model`, as the server recorded them, in order."""
        async with http.http_client(self.url) as client:
            entries: list[dict[str, Any]] = (await client.get(f"{self.url}/__aimock/journal")).json()
        return [entry["body"] for entry in entries if entry["body"] and entry["body"].get("model") == model]


@contextmanager
def running_aimock(fixtures: list[dict[str, Any]]) -> Generator[Aimock]:
    """Start a server that answers by `fixtures`, and end it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"fixtures": fixtures}, file)
        file.flush()
        command = ["node", str(installed() / _PROGRAM), "--port", "0", "--fixtures", file.name, "--validate-on-load"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                yield Aimock(_address(server))
            finally:
                server.terminate()


def _address(server: subprocess.Popen[str]) -> str:
    """Read the server's output until it names its address."""
    printed: list[str] = []
    for line in server.stdout or ():
        printed.append(line)
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise RuntimeError(f"aimock did not start: {''.join(printed)}")


def installed() -> Path:
    """Install next to the cache and move the folder there, so that a broken install is never used."""
    if not (_CACHE / _PROGRAM).exists():
        _CACHE.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=_CACHE.parent))
        package = f"@copilotkit/aimock@{VERSION}"
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(fresh), package], check=True)
        shutil.rmtree(_CACHE, ignore_errors=True)
        fresh.rename(_CACHE)
    return _CACHE
