"""A process of its own that has the Temporal SDK download its server: `python -m client.server.sdk_download FOLDER`.

The SDK offers no download without a start, and no way to break it off; a process can be killed.
"""

import asyncio
import sys

from temporalio.testing import WorkflowEnvironment


async def _download(folder: str) -> None:
    environment = await WorkflowEnvironment.start_local(download_dest_dir=folder)  # pyright: ignore[reportUnknownMemberType]
    await environment.shutdown()


if __name__ == "__main__":
    try:
        asyncio.run(_download(sys.argv[1]))
    except RuntimeError as error:
        sys.exit(str(error))
