"""`server.json`."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from orga.client.server.endpoint import Endpoint, ServerRecord, read_record, write_record

RECORD = ServerRecord(42, "127.0.0.1", 7233, 8233, "temporal version 1", "2026-11-21T00:00:00+00:00", ready=True)


def test_a_record_is_read_back_unchanged(tmp_path: Path) -> None:
    write_record(tmp_path / "server.json", RECORD)
    assert read_record(tmp_path / "server.json") == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["server.json"]


def test_a_record_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    for name in ("server.new", "server.json"):
        (tmp_path / name).symlink_to("other")
    write_record(tmp_path / "server.json", RECORD)
    assert (tmp_path / "other").read_text() == "mine"
    assert (tmp_path / "server.json").lstat().st_mode & 0o777 == 0o600


def test_a_record_contains_the_endpoint_of_the_server() -> None:
    assert RECORD.endpoint == Endpoint("127.0.0.1:7233", "http://127.0.0.1:8233", "default", embedded=True)


def test_a_record_of_a_later_version_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    path.write_text(json.dumps(asdict(RECORD) | {"colour": "blue"}))
    assert read_record(path) == RECORD


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no file"),
        pytest.param("", id="an empty file"),
        pytest.param('{"pid": 1', id="incomplete JSON"),
        pytest.param("[1]", id="no object"),
        pytest.param('{"pid": 1}', id="fields missing"),
    ],
)
def test_an_invalid_record_counts_as_missing(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    if text is not None:
        path.write_text(text)
    assert read_record(path) is None
