"""A server that restarts finds its port free, because the kernel does not assign it to anybody meanwhile."""

import socket
from pathlib import Path

import pytest

from tests.support.parts import free_port as ports
from tests.support.parts.free_port import free_port


def test_a_free_port_is_outside_the_range_of_the_kernel() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert [port for port in (free_port() for _ in range(50)) if first <= port <= last] == []


def test_a_port_that_somebody_listens_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    free = next(port for port in iter(free_port, taken))
    monkeypatch.setattr(ports, "_REGISTERED", (taken, free))
    with socket.create_server(("127.0.0.1", taken)):
        assert {free_port() for _ in range(20)} == {free}


def test_an_error_explains_that_the_kernel_assigns_all_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_GIVEN_OUT", tmp_path / "range")
    with pytest.raises(RuntimeError, match=r"beside 1024 to 65535: narrow .*range"):
        free_port()
