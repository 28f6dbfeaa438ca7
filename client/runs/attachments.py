"""Puts the pictures and documents of a task or message into the store of blobs, and returns references to send."""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from orga.activities.adapters.blob_folder import BlobFolder
from orga.activities.media import Media, UnusableMedia, keep_media, shown_name
from orga.activities.ports import BlobStore
from orga.client.errors import ConfigError
from orga.client.server.home import server_home, user_path
from orga.workflows.types.input import MAX_ATTACHMENTS, Attachment
from orga.workflows.types.record import InvalidInput, check_input
from orga.workflows.types.sessions.session_input import MAX_MESSAGE_ATTACHMENTS

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.service import ServiceClient

    from orga.workflows.types.goals.goal_input import GoalInput
    from orga.workflows.types.input import AgentInput

T = TypeVar("T", bound="AgentInput | GoalInput")

Attachable = str | Path | bytes | Media | Attachment | Mapping[str, Any]
"""A path, bytes, `orga.Media`, or a reference to a blob that is already in the store."""

_STORES_BY_CONNECTION: "WeakKeyDictionary[ServiceClient, BlobStore]" = WeakKeyDictionary()


def register_store(connection: "ServiceClient", store: BlobStore | None) -> None:
    """Register the application's own store, if it has one, for attachments that this connection's clients send.

    Raise ConfigError if the connection has a different store, because no client could know which one a run will read.
    """
    if store is not None and _STORES_BY_CONNECTION.setdefault(connection, store) is not store:
        raise ConfigError("blobs: another plugin of this connection has a different store; give both the same one")


def forget_store(connection: "ServiceClient") -> None:
    """Let this connection's clients use the user's store again."""
    _STORES_BY_CONNECTION.pop(connection, None)


def blob_store() -> BlobFolder:
    """Return the store of this user. It is created by the first blob."""
    return BlobFolder(server_home().blobs)


def store_of(client: "Client") -> BlobStore:
    """Return the application's own store, or the user's."""
    own = _STORES_BY_CONNECTION.get(client.service_client)
    return blob_store() if own is None else own


def read_attachment(path: str | Path) -> Media:
    """Return the file's content. A leading `~` is the home folder."""
    try:
        return Media.read(user_path(path))
    except (OSError, ValueError) as error:  # ValueError: the path contains NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnusableMedia(f"{str(path)!r}: cannot be read: {reason}. Give a file's path") from None


def refuse_too_many(count: int, most: int = MAX_ATTACHMENTS) -> None:
    """Raise UnusableMedia if a task or a message has more attachments than it may."""
    if count > most:
        raise UnusableMedia(f"there are {count}, and the limit is {most}. Leave some out")


async def with_attachments(checked: T, given: Sequence[Attachable], client: "Client") -> T:
    """Return the input with more attachments, after its own."""
    if not given:
        return checked
    kept = await kept_attachments(given, store_of(client), already=checked.attachments)
    return checked.with_attachments(kept)


def inline_media(encoded: str, name: str = "") -> Media:
    """Return the content of base64, or of a `data:` URL with base64. Other addresses are refused and never fetched."""
    start, comma, data = encoded.partition(",")
    if comma and start.startswith("data:") and start.endswith(";base64"):
        encoded = data
    try:
        return Media(b64decode(encoded, validate=True), name)
    except ValueError:  # an address gets here, too, because base64 has no colon
        problem = "is not base64, and no address is fetched. Send the bytes"
        raise InvalidInput(f"attachments: {shown_name(name)}: {problem}") from None


async def message_with_media(text: str, media: Iterable[Media], client: "Client") -> tuple[str, tuple[Attachment, ...]]:
    """Store the media of a front end's message. Return its text, or a line for each medium, and the references."""
    kept = await kept_attachments(media, store_of(client), most=MAX_MESSAGE_ATTACHMENTS)
    return (text if text.strip() else "\n".join(each.part().line() for each in kept)), kept


async def kept_attachments(
    given: Iterable[Attachable],
    store: BlobStore,
    *,
    already: tuple[Attachment, ...] = (),
    most: int = MAX_ATTACHMENTS,
) -> tuple[Attachment, ...]:
    """Put files and bytes into the store. Return all references in order, first those of `already`.

    Raises:
        InvalidInput: A file cannot be read or kept, is no picture or PDF, or exceeds a limit. The text names it.
    """
    if isinstance(given, str | Path | bytes | Media | Attachment | Mapping) or not hasattr(given, "__iter__"):
        raise InvalidInput("attachments: one is given, not a list. Write [...] around it")
    listed = [*already, *given]
    try:
        refuse_too_many(len(listed), most)
        return tuple([await _kept(each, store) for each in listed])
    except UnusableMedia as error:
        raise InvalidInput(f"attachments: {error}") from error.__cause__


async def _kept(given: Attachable, store: BlobStore) -> Attachment:
    if isinstance(given, Attachment):
        return given
    if isinstance(given, Mapping):
        try:
            return check_input(Attachment, dict(given))
        except InvalidInput as error:
            raise InvalidInput(f"attachments: {error}") from None
    if isinstance(given, str | Path):
        given = read_attachment(given)
    return Attachment.of(await keep_media(given if isinstance(given, Media) else Media(given), store))
