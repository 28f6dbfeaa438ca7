"""Which server is used, and the messages about one that does not answer."""

import asyncio
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from orga.client.errors import ConfigError, ServerUnavailable
from orga.client.server import resolve
from orga.client.server.endpoint import Endpoint, Report
from orga.client.server.resolve import connect_options, resolve_endpoint
from orga.client.server.server_errors import connect_failure, silence_reason

EMBEDDED = Endpoint("127.0.0.1:7233", "http://127.0.0.1:8233", embedded=True)


def silent(line: str) -> None:
    """Ignore the line."""


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A machine without a Temporal configuration that notes requests for the embedded server."""
    asked: list[str] = []

    async def ensure(report: Report) -> Endpoint:
        asked.append("embedded")
        return EMBEDDED

    monkeypatch.setattr(resolve, "ensure_server", ensure)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    (tmp_path / "temporal.toml").touch()
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return asked


@pytest.fixture
def closed() -> Generator[str]:
    """An address that refuses connections: bound, so that nobody else gets it, and not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


async def test_without_configuration_the_embedded_server_is_used(started: list[str]) -> None:
    assert await resolve_endpoint(None, silent) == EMBEDDED
    assert started == ["embedded"]


async def test_a_configured_server_that_does_not_answer_is_reported_and_none_is_started(
    closed: str, started: list[str]
) -> None:
    with pytest.raises(ServerUnavailable) as caught:
        await resolve_endpoint(closed, silent)

    assert str(caught.value) == (
        f"the Temporal server at {closed} does not answer (connection refused); "
        "start it or correct the configured address; without one, a server is started here"
    )
    assert started == []


@pytest.mark.parametrize("source", ["environment", "profile"])
async def test_temporals_own_configuration_counts_as_configured(
    source: str, closed: str, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "environment":
        monkeypatch.setenv("TEMPORAL_ADDRESS", closed)
    else:
        (tmp_path / "temporal.toml").write_text(f'[profile.prod]\naddress = "{closed}"\n')
        monkeypatch.setenv("TEMPORAL_PROFILE", "prod")
    with pytest.raises(ServerUnavailable, match=rf"{closed} does not answer .* TEMPORAL_\* environment or profile"):
        await resolve_endpoint(None, silent)
    assert started == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_address_of_the_embedded_server_has_its_ui(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connected(**_: object) -> None:
        return None

    monkeypatch.setattr(resolve.Client, "connect", connected)
    monkeypatch.setattr(resolve, "running_server", lambda: EMBEDDED)
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"{host}:7233")
    assert (await resolve_endpoint(None, silent)).ui == EMBEDDED.ui
    assert (await resolve_endpoint("127.0.0.1:7234", silent)).ui is None


async def test_an_address_with_a_scheme_is_refused_with_a_correction(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "http://127.0.0.1:7233/")
    with pytest.raises(ConfigError, match=r"is no address of a Temporal server; write HOST:PORT, as 127\.0\.0\.1:7233"):
        await resolve_endpoint(None, silent)
    assert [each for each in recwarn if each.category is not ResourceWarning] == []  # another test's garbage


async def test_a_missing_profile_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_PROFILE", "nope")
    with pytest.raises(ServerUnavailable, match=r"Profile 'nope' not found.*; correct it, or check TEMPORAL_PROFILE"):
        await resolve_endpoint(None, silent)


def test_credentials_of_the_environment_are_sent_to_configured_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    assert connect_options(Endpoint("cloud:7233", None, "ours")) == {
        "target_host": "cloud:7233",
        "namespace": "ours",
        "api_key": "secret",
        "tls": True,
    }
    assert connect_options(EMBEDDED) == {"target_host": "127.0.0.1:7233", "namespace": "default"}


async def test_a_silent_server_is_reported_as_a_timeout() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert await silence_reason(f"127.0.0.1:{listener.getsockname()[1]}", 0.3) == "no answer within 0.3 s"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something other than a Temporal server answers"),
        (b"", "it closes the connection without an answer"),
    ],
)
async def test_a_server_that_closes_the_connection_is_identified_by_its_http_answer(
    answer: bytes, expected: str
) -> None:
    """A web server may close before the SDK has read its answer, so it gets an HTTP request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.read(4)) == b"HEAD":
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        assert await silence_reason(f"{host}:{port}", 30) == expected


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        pytest.param('Os { code: 111, message: "Connection refused" }', "connection refused", id="nobody listens"),
        pytest.param("failed to lookup address information: x", "unknown host", id="no such name"),
        pytest.param("FRAME_SIZE_ERROR", "something other than a Temporal server answers", id="a web server"),
        pytest.param("InvalidMessage(InvalidContentType)", "it does not speak TLS", id="TLS to a plain port"),
        pytest.param("code: Unauthenticated", "it refuses our credentials", id="a wrong key"),
        pytest.param(
            'tonic::transport::Error(Transport, hyper::Error(Io, Custom { kind: BrokenPipe, error: "stream closed" }))',
            "it closes the connection without an answer",
            id="a closed connection",
        ),
        pytest.param(
            "tonic::transport::Error(Transport, hyper::Error(Io, Os { code: 104, kind: ConnectionReset }))",
            "it closes the connection without an answer",
            id="a reset connection",
        ),
        pytest.param(
            "tonic::transport::Error(Transport, hyper::Error(Parse(Version)))",
            "something other than a Temporal server answers",
            id="another library error",
        ),
        pytest.param("a\n  b", "a b", id="anything else, on one line"),
    ],
)
def test_connect_failure(message: str, cause: str) -> None:
    assert connect_failure(RuntimeError(message)) == cause
