"""A worker's work before it polls is minimal, because `orga run` waits for it."""

import gc
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.tools import catalog, guarded_http
from orga.client.config.manifests import read_manifests
from orga.client.config.sections import OrgaConfig
from orga.client.workers import child
from orga.client.workers.parts import configured_parts

NEVER = (
    *("genai_prices", "numpy", "mcp", "opentelemetry.sdk", "requests", "prompt_toolkit", "cryptography"),
    "snowballstemmer",
)
"""Modules for prices, embeddings, stemming, serving and export, which are loaded at their first use."""


async def test_certificates_are_read_once_at_the_first_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[ssl.SSLContext] = []
    make = guarded_http.create_ssl_context

    def counted(**options: Any) -> ssl.SSLContext:
        read.append(make(**options))
        return read[-1]

    monkeypatch.setattr(guarded_http, "create_ssl_context", counted)
    guarded_http._default_ssl_context.cache_clear()
    configured_parts(OrgaConfig(), {}, tmp_path, knows_attributes=False)
    assert not read
    for _ in range(2):
        async with guarded_http.guarded_client(guarded_http.PublicBackend()):
            pass
    assert len(read) == 1


def test_a_worker_loads_only_modules_that_every_run_needs() -> None:
    program = "import sys, orga.worker\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if f"{name}.".startswith(tuple(f"{each}." for each in NEVER))]


def test_manifests_are_read_without_creating_tools_again(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.builtin_specs()

    def make(*_: object, **__: object) -> None:
        pytest.fail("made again")

    monkeypatch.setattr(catalog, "builtin_tools", make)
    assert read_manifests(()) == ([], [])


def test_garbage_collection_is_off_while_a_worker_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded(Exception):
        pass

    def load(name: str) -> None:
        assert name == "orga.worker"
        raise Loaded(gc.isenabled())

    def nobody(_: object) -> None: ...

    monkeypatch.setattr(child, "listen", nobody)
    monkeypatch.setattr(child, "import_module", load)
    with pytest.raises(Loaded) as caught:
        child.main()
    assert caught.value.args == (False,)
    assert gc.isenabled()
