"""`orga console` starts only where it is safe, and says why it does not start."""

import errno
import socket
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.workbench.console import (  # pyright: ignore[reportPrivateUsage] - the parts of the command
    _open_in_browser,
    _Options,
)
from orga.client.console import serving
from orga.client.console.serving import bound_socket, loopback_sockets
from orga.client.errors import OrgaError

TOKENS: dict[str, Any] = {"tokens": Path("tokens.json")}
URL: dict[str, Any] = {"url": "https://console.example.com"}
PUBLIC: dict[str, Any] = {"host": "0.0.0.0"}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a public address without names": (PUBLIC | URL | {"behind_proxy": True}, "--tokens FILE"),
    "a public address without encryption": (PUBLIC | URL | TOKENS, "--tls-cert and --tls-key, or --behind-proxy"),
    "a public address that nobody knows": (PUBLIC | TOKENS | {"behind_proxy": True}, "--url"),
    "a host name": ({"host": "console.example.com"}, "--tokens FILE"),
    "behind a proxy without names": (URL | {"behind_proxy": True}, "--tokens FILE"),
    "a certificate without its key": ({"tls_cert": Path("cert.pem")}, "--tls-key"),
    "a certificate that is not there": (
        {"tls_cert": Path("no.pem"), "tls_key": Path("no.key")},
        "file not found: no.pem",
    ),
    "behind a proxy that names people, at no address": ({"proxy": "10.0.0.7"}, "--proxy: the console must know"),
    "a proxy without an address": (URL | {"proxy": "nginx"}, "no address or network"),
    "an address of no site": (TOKENS | {"url": "console.example.com"}, "must be like https://"),
}


@pytest.mark.parametrize(("given", "why"), REFUSED.values(), ids=REFUSED)
def test_the_console_refuses_to_start(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        _Options(**given).check()
    assert why in str(refused.value)


ALLOWED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "on this machine": ({}, {"127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.1", "localhost", "[::1]"}),
    "behind a proxy with tokens": (
        TOKENS | URL | {"behind_proxy": True},
        {"127.0.0.1:80", "127.0.0.1", "console.example.com"},
    ),
    "behind a proxy that names people": (
        URL | {"proxy": "10.0.0.0/8"},
        {"127.0.0.1:80", "127.0.0.1", "console.example.com"},
    ),
}


@pytest.mark.parametrize(("given", "hosts"), ALLOWED.values(), ids=ALLOWED)
def test_the_console_answers_to_its_own_names_only(given: dict[str, Any], hosts: set[str]) -> None:
    options = _Options(**given)
    options.check()
    assert options.hosts(80) == hosts


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    first = bound_socket("127.0.0.1", 0)
    with first, pytest.raises(OrgaError, match=r"--port: 127\.0\.0\.1:\d+ cannot be used .*Choose another"):
        bound_socket("127.0.0.1", first.getsockname()[1])


def test_no_other_user_can_listen_where_a_browser_looks_for_the_console() -> None:
    found = loopback_sockets("127.0.0.1", 0)
    port = found[0].getsockname()[1]
    try:
        for host in ("127.0.0.1", "::1"):
            with pytest.raises(OrgaError, match="cannot be used"):
                bound_socket(host, port).close()
    finally:
        for each in found:
            each.close()
    if len(found) == 2:
        with bound_socket("::1", port), pytest.raises(OrgaError, match=rf"--port: \[::1\]:{port} cannot be used"):
            loopback_sockets("127.0.0.1", port)


def test_a_machine_without_ipv6_has_one_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = serving._bound  # pyright: ignore[reportPrivateUsage]

    def without_ipv6(host: str, port: int) -> socket.socket:
        if ":" in host:
            raise OSError(errno.EAFNOSUPPORT, "no such family")
        return bound(host, port)

    monkeypatch.setattr(serving, "_bound", without_ipv6)
    [only] = loopback_sockets("127.0.0.1", 0)
    only.close()


def test_no_process_has_the_token_among_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path))
    opened = SimpleQueue[str]()
    monkeypatch.setattr("webbrowser.open", opened.put)
    _open_in_browser("http://127.0.0.1:8642/?token=secret&a=b")
    page = tmp_path / "console.html"
    assert opened.get(timeout=10) == page.as_uri()
    assert page.stat().st_mode & 0o777 == 0o600
    assert "url=http://127.0.0.1:8642/?token=secret&amp;a=b" in page.read_text()
