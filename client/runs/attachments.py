"""Pictures and documents that a starter gives with a task: kept in the store, and sent as references."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from orga.activities.adapters.blob_folder import BlobFolder
from orga.activities.media import Media, UnusableMedia, keep_media
from orga.activities.ports import BlobStore
from orga.client.server.home import server_home
from orga.workflows.types.input import MAX_ATTACHMENTS, Attachment
from orga.workflows.types.record import InvalidInput, check_input

Attachable = str | Path | bytes | Media | Attachment | Mapping[str, Any]
"""A path, the bytes, `orga.Media`, or a reference to what the store has already."""


def blob_store() -> BlobFolder:
    """Return the store of this user. It is created by the first blob."""
    return BlobFolder(server_home().blobs)


async def kept_attachments(given: Iterable[Attachable], store: BlobStore | None = None) -> tuple[Attachment, ...]:
    """Put files and bytes into the store, and return the references in order.

    Raises:
        InvalidInput: A file cannot be read, is no picture or PDF, or exceeds a limit. The text names it.
    """
    listed = [*given]
    if len(listed) > MAX_ATTACHMENTS:
        raise InvalidInput(f"attachments: there are {len(listed)}, and the limit is {MAX_ATTACHMENTS}. Leave some out")
    return tuple([await _kept(each, store or blob_store()) for each in listed])


async def _kept(given: Attachable, store: BlobStore) -> Attachment:
    if isinstance(given, Attachment):
        return given
    if isinstance(given, Mapping):
        return check_input(Attachment, dict(given))
    try:
        media = given if isinstance(given, Media) else Media(given) if isinstance(given, bytes) else Media.read(given)
        return Attachment.of(await keep_media(media, store))
    except UnusableMedia as error:
        raise InvalidInput(f"attachments: {error}") from None
    except OSError as error:
        raise InvalidInput(f"attachments: {error.filename or 'the store'}: {error.strerror}") from None
