"""Ports are claimed one by one."""

import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from orga.client.errors import ServerUnavailable
from orga.client.server import port_numbers
from orga.client.server.port_numbers import HOST, claimed_port, number_lock


@pytest.fixture
def used() -> Generator[int]:
    """A port that another program listens on, with free ones after it."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_in_use_is_replaced_by_the_next_free_one(used: int, tmp_path: Path) -> None:
    claim = claimed_port(used, tmp_path)
    assert used < claim.port < used + port_numbers.MAX_TRIES
    os.close(claim.descriptor)


def test_two_servers_that_start_concurrently_get_different_ports(used: int, tmp_path: Path) -> None:
    """Neither has bound its port yet, so only the claims separate them."""
    first = claimed_port(used + 1, tmp_path)
    second = claimed_port(first.port, tmp_path)
    assert second.port > first.port

    os.close(first.descriptor)
    again = claimed_port(first.port, tmp_path)
    assert again.port == first.port
    os.close(second.descriptor)
    os.close(again.descriptor)


def test_a_claimed_port_is_kept_unless_it_is_in_use(used: int, tmp_path: Path) -> None:
    ours = claimed_port(used + 1, tmp_path)
    other = claimed_port(ours.port, tmp_path)
    assert other.port > ours.port
    os.close(other.descriptor)
    assert claimed_port(ours.port, tmp_path, lock=ours.descriptor) == ours
    os.close(ours.descriptor)

    taken = number_lock(used, tmp_path)
    claim = claimed_port(used, tmp_path, lock=taken)
    assert claim.port > used
    os.close(claim.descriptor)
    assert number_lock(used, tmp_path) is not None, "an unused claim is released"


def test_an_error_explains_that_all_ports_are_in_use(
    used: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_numbers, "MAX_TRIES", 1)
    with pytest.raises(ServerUnavailable, match=f"every port from {used} to {used} .* is in use; stop what uses them"):
        claimed_port(used, tmp_path)
