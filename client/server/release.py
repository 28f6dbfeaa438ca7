"""The `temporal` command of a release, downloaded and held against the checksum that was published with it."""

import asyncio
import platform
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path

VERSION = "1.5.1"
"""Of the command. The sources of later ones carry a `replace` directive, which `go install` refuses."""

ADDRESS = f"https://github.com/temporalio/cli/releases/download/v{VERSION}/temporal_cli_{VERSION}_"

ARCHIVES = {
    ("Linux", "x86_64"): ("linux_amd64", "ddc95e08b0b076efd4ea9733a3f488eb7d2be875f8834e616cd2a37358b4852d"),
    ("Linux", "aarch64"): ("linux_arm64", "bd1b0db9f18b051026de8bf6cc1505f2510f14bbb7a8b9a4a91fff46c77454f5"),
    ("Darwin", "x86_64"): ("darwin_amd64", "bbb73e2a31135abe50a1f1cdb35030c42961df618e8ce9c60ae89f201540c5d9"),
    ("Darwin", "arm64"): ("darwin_arm64", "cca01b7ea35ad56e2a328d9ae596bf716bd22313ef63c7a761c88354457c2415"),
}
"""Name and SHA-256 of the archive for each system and machine."""

MAX_BYTES = 200_000_000
"""Of an archive; it has some 50 MB."""

SILENCE_S = 10.0
"""After which a server that says nothing is given up."""


class NoRelease(Exception):
    """The archive cannot be had, or is not the one that was published; the text is a clause that says why."""


async def unpacked_release(folder: Path) -> Path:
    """Return the command, from the archive for this machine.

    Raises:
        NoRelease: With the reason; nothing that was not checked has been unpacked.
    """
    import httpx  # most commands find the server as it is, and never speak HTTP

    machine = platform.system(), platform.machine()
    if machine not in ARCHIVES:
        raise NoRelease(f"release {VERSION} has none for {' '.join(machine)}")
    name, checksum = ARCHIVES[machine]
    archive = folder / "archive"
    try:
        found = await _fetch(f"{ADDRESS}{name}.tar.gz", archive)
    except httpx.HTTPError as error:
        raise NoRelease(str(error) or type(error).__name__) from error
    if found != checksum:
        raise NoRelease(f"what came is not release {VERSION}: its SHA-256 is {found}, not {checksum}")
    return await asyncio.to_thread(_unpacked, archive, folder / "temporal")


async def _fetch(address: str, archive: Path) -> str:
    """Save what stands there; return its SHA-256."""
    import httpx

    digest, size = sha256(), 0
    async with (
        httpx.AsyncClient(follow_redirects=True, timeout=SILENCE_S) as client,
        client.stream("GET", address, headers={"accept-encoding": "identity"}) as response,
    ):
        response.raise_for_status()
        with archive.open("wb") as file:
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > MAX_BYTES:
                    raise NoRelease(f"it has more than {MAX_BYTES:,} bytes")
                digest.update(piece)
                file.write(piece)
    return digest.hexdigest()


def _unpacked(archive: Path, command: Path) -> Path:
    with tarfile.open(archive) as members:
        found = members.extractfile("temporal") if "temporal" in members.getnames() else None
        if found is None:
            raise NoRelease("the archive holds no `temporal`")
        with found, command.open("wb") as file:
            shutil.copyfileobj(found, file)
    return command
