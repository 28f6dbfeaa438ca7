"""Locks end with their holder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from orga.activities.adapters.shared_files import acquire_lock, is_locked, try_lock


def test_a_lock_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = acquire_lock(path)
    assert (try_lock(path), is_locked(path)) == (None, True)

    os.close(first)
    assert not is_locked(path)


def test_shared_holders_exclude_an_exclusive_one(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    shared = [acquire_lock(path, shared=True), acquire_lock(path, shared=True)]
    os.close(shared[0])
    assert try_lock(path) is None

    os.close(shared[1])
    second = try_lock(path)
    assert second is not None
    os.close(second)


def test_a_lock_that_was_never_created_is_not_held(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none.lock")
    assert not (tmp_path / "none.lock").exists()


def test_an_inherited_lock_is_held_until_the_child_ends(tmp_path: Path) -> None:
    """The supervisor and the server get their locks like this, so that kill -9 leaves no stale lock."""
    path = tmp_path / "a.lock"
    lock = acquire_lock(path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    os.close(lock)
    assert is_locked(path)

    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not is_locked(path)


def test_a_child_without_the_inherited_lock_does_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    lock = acquire_lock(path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.close(lock)
    try:
        assert not is_locked(path)
    finally:
        child.communicate(b"\n")
