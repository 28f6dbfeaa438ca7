"""The address of a database is shown without its secrets."""

from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.postgres.schema import parse_address
from orga.client.config.sections import OrgaConfig
from orga.client.workers.checked import worker_report
from orga.client.workers.knowledge_store import configured_store

CONFIG = OrgaConfig.model_validate({"knowledge": {"backend": "postgres"}}, extra="forbid")


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        pytest.param("postgresql://u:planted@db.test/orga", "postgresql://db.test:5432/orga", id="an address"),
        pytest.param("postgres://u:planted@db.test:6/o?sslmode=disable", "postgresql://db.test:6/o", id="a port"),
        pytest.param("host=db.test dbname=orga password=planted", "postgresql://db.test:5432/orga", id="keywords"),
        pytest.param("postgresql://u:planted@[::1]:7/o", "postgresql://::1:7/o", id="IPv6"),
        pytest.param("postgresql:///o?host=/run/pg&password=planted", "postgresql:///run/pg:5432/o", id="a socket"),
        pytest.param("postgresql://u@a.test:1,b.test:2/o", "postgresql://a.test,b.test:1,2/o", id="two servers"),
    ],
)
def test_the_server_is_shown_without_the_password(dsn: str, place: str) -> None:
    found = parse_address(dsn, "DSN")
    assert found.shown == place
    assert "planted" not in f"{found} {found!r}"


@pytest.mark.parametrize("dsn", ["planted", "mysql://u:planted@h/d", "postgresql://u:planted@h/d?planted=1", "host='"])
def test_an_invalid_address_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ValueError, match="DSN holds no address of a database; write it like") as caught:
        parse_address(dsn, "DSN")
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("dsn", "sslmode"),
    [
        ("postgresql://db.test/orga", "sslmode=require"),
        ("postgresql://db.test/orga?sslmode=verify-full", "sslmode=verify-full"),
        ("postgresql://db.test/orga?sslmode=disable", "sslmode=disable"),
        ("postgresql://127.0.0.1/orga", ""),
        ("postgresql:///orga", ""),
    ],
)
def test_a_remote_server_needs_tls_by_default(dsn: str, sslmode: str) -> None:
    conninfo = parse_address(dsn, "DSN").conninfo
    assert (sslmode in conninfo) if sslmode else ("sslmode" not in conninfo)


def test_a_store_without_an_address_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="but ORGA_KNOWLEDGE_DSN is not set in the environment; set it to the address"):
        configured_store(CONFIG, {}, tmp_path)


def test_the_doctor_reports_an_invalid_address(tmp_path: Path) -> None:
    found = worker_report(CONFIG, tmp_path, {"ORGA_KNOWLEDGE_DSN": "planted"})["problems"]
    assert [problem["place"] for problem in found] == ["knowledge"]
    assert "planted" not in str(found)


def test_a_missing_extra_is_reported_with_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.client.workers.knowledge_store.find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(ValueError, match=r"pip install '/path/to/orga\[postgres\]'"):
        configured_store(CONFIG, {"ORGA_KNOWLEDGE_DSN": "postgresql://h/d"}, tmp_path)
