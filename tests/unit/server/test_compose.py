"""docker-compose.yml matches the schema of the Compose specification and our own rules."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orga.client.server.embedded import DYNAMIC_CONFIG

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SCHEMA = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"

SECRET = re.compile("KEY|PASSWORD|PWD|SECRET|TOKEN")
FROM_THE_ENVIRONMENT = re.compile(r"\$\{[A-Z_]+:(-|\?[^}]*)\}")
"""Without a default: `${NAME:-}`, or `${NAME:?what to do}` where nothing works without it."""


def test_the_file_matches_the_compose_schema() -> None:
    jsonschema.validate(COMPOSE, json.loads(SCHEMA.read_text()))


def test_the_schema_refuses_an_invalid_file() -> None:
    """This tests the test: `condition` is an enumeration."""
    wrong = {"services": {"worker": {"depends_on": {"temporal": {"condition": "is_fine"}}}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_pinned_image_or_is_built_here(name: str) -> None:
    service = SERVICES[name]
    assert ("image" in service) != ("build" in service)
    assert "build" in service or re.fullmatch(r"[^:]+:(?!latest)[\w.-]+@sha256:[0-9a-f]{64}", service["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_the_file_contains_no_secret(name: str) -> None:
    for variable, value in SERVICES[name].get("environment", {}).items():
        assert not SECRET.search(variable) or FROM_THE_ENVIRONMENT.fullmatch(value), variable


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_named_or_files_of_this_repository(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or (ROOT / source).is_file()


def test_services_that_others_wait_for_report_their_health() -> None:
    waits = {
        other
        for service in SERVICES.values()
        for other, wait in service.get("depends_on", {}).items()
        if wait["condition"] == "service_healthy"
    }
    assert waits == {"postgres", "temporal"}
    assert all("healthcheck" in SERVICES[name] for name in waits)


def test_the_worker_starts_after_a_healthy_server_and_the_setup() -> None:
    assert SERVICES["worker"]["depends_on"] == {
        "temporal": {"condition": "service_healthy"},
        "setup": {"condition": "service_completed_successfully"},
    }
    assert SERVICES["setup"]["entrypoint"] == ["orga", "setup"]
    assert SERVICES["setup"]["restart"] == "no"


def test_a_knowledge_store_starts_only_with_its_profile() -> None:
    """Without its profile nothing of it starts, and its password is not needed."""
    assert SERVICES["knowledge"]["profiles"] == ["knowledge"]
    assert all("knowledge" not in service.get("depends_on", {}) for service in SERVICES.values())
    assert SERVICES["knowledge"]["environment"]["POSTGRES_PASSWORD"] == "${KNOWLEDGE_PASSWORD:-}"


def test_the_image_can_reach_a_shared_store() -> None:
    assert re.search(r"^psycopg-binary==", (ROOT / "requirements-worker.lock").read_text(), re.MULTILINE)


def test_the_server_has_the_settings_of_the_embedded_one() -> None:
    settings: dict[str, list[dict[str, Any]]] = yaml.safe_load((ROOT / "deploy" / "temporal.yaml").read_text())
    assert {f"{key}={json.dumps(values[0]['value'])}" for key, values in settings.items()} == set(DYNAMIC_CONFIG)


def test_the_image_pins_its_dependencies_by_hash_and_does_not_run_as_root() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements-worker.lock" in dockerfile
    assert re.search(r"^USER 10001$", dockerfile, re.MULTILINE)
    assert dockerfile.rstrip().endswith('ENTRYPOINT ["orga-worker"]')


def test_base_images_are_pinned_by_digest() -> None:
    bases = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    ours = {name for _, name in bases if name}
    foreign = [image for image, _ in bases if image not in ours]
    assert foreign
    assert all(re.fullmatch(r"[^:@]+:[\w.-]+@sha256:[0-9a-f]{64}", image) for image in foreign)


def test_all_copied_files_are_in_the_build_context() -> None:
    """`.dockerignore` lists what is included: no `.env` and no repository history."""
    let_in = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = {
        source
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)
