"""Pictures and documents: their types and limits, the folder that keeps them, and what a run gets by reference."""

import asyncio
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import pytest

from examples.parts.parts import MemoryBlobs
from orga.activities.adapters.blob_folder import BlobFolder
from orga.activities.media import (
    MAX_DOCUMENT_BYTES,
    MAX_IMAGE_BYTES,
    Media,
    UnusableMedia,
    digest_of,
    keep_media,
    loaded_media,
    output_with_media,
    with_stored_media,
)
from orga.client.cli.workbench import doctor
from orga.client.cli.workbench.doctor import blob_checks, check_lines
from orga.client.runs.attachments import kept_attachments
from orga.workflows.types.input import Attachment, parse_input
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.tools import MAX_RESULT_MEDIA, ToolOutput
from tests.support.values.pdfs import a_pdf
from tests.support.values.pictures import A_GIF, A_JPEG, A_WEBP, a_png


@pytest.fixture(name="store")
def a_store(tmp_path: Path) -> BlobFolder:
    return BlobFolder(tmp_path / "state" / "blobs")


@pytest.mark.parametrize(
    ("data", "media_type", "line"),
    [
        pytest.param(a_png(640, 480), "image/png", "[image x.txt, 640x480, 378 bytes]", id="PNG"),
        pytest.param(A_JPEG, "image/jpeg", "[image x.txt, 8x7, 23 bytes]", id="JPEG"),
        pytest.param(A_GIF, "image/gif", "[image x.txt, 5x6, 14 bytes]", id="GIF"),
        pytest.param(A_WEBP, "image/webp", "[image x.txt, 9x10, 30 bytes]", id="WebP"),
        pytest.param(a_pdf("a", "b"), "application/pdf", "[document x.txt, 2 pages, 933 bytes]", id="PDF"),
    ],
)
def test_the_bytes_decide_about_the_type(data: bytes, media_type: str, line: str) -> None:
    found = loaded_media(Media(data, "x.txt"))
    assert (found.media_type, found.line(), found.digest) == (media_type, line, digest_of(data))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"<svg>", "'x.png': is no PNG, JPEG, GIF, WebP or PDF. Convert it to one of these", id="SVG"),
        pytest.param(b"", "is no PNG", id="nothing"),
        pytest.param(A_GIF + bytes(MAX_IMAGE_BYTES), "has 3.8 MB, and the limit is 3.8 MB. Scale it down", id="bytes"),
        pytest.param(
            b"%PDF-1" + bytes(MAX_DOCUMENT_BYTES), "has more than 20.0 MB, and the limit is 20.0 MB. Split it", id="PDF"
        ),
        pytest.param(a_png(9_000, 1), "has 9000x1 pixels, and the limit of a side is 8000. Scale it", id="pixels"),
    ],
)
def test_an_error_names_the_file_the_limit_and_the_remedy(data: bytes, problem: str) -> None:
    with pytest.raises(UnusableMedia, match=r"'x\.png'") as raised:
        loaded_media(Media(data, "x.png"))
    assert problem in str(raised.value)


async def test_a_blob_is_private_and_found_by_its_digest(store: BlobFolder) -> None:
    data = a_png()
    digest = await store.put(data, "image/png")
    assert (digest, await store.get(digest)) == (digest_of(data), data)
    path = store.path(digest)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
    assert [*path.parent.iterdir()] == [path]


async def test_a_changed_blob_is_as_good_as_gone_and_can_be_put_again(store: BlobFolder) -> None:
    digest = await store.put(a_png(), "image/png")
    store.path(digest).write_bytes(a_png(colour=9))
    assert await store.get(digest) is None
    await store.put(a_png(), "image/png")
    assert await store.get(digest) == a_png()


async def test_no_link_pipe_or_folder_is_read(store: BlobFolder, tmp_path: Path) -> None:
    digest = await store.put(a_png(), "image/png")
    elsewhere = tmp_path / "secret.png"
    store.path(digest).rename(elsewhere)
    assert await store.get(digest) is None
    store.path(digest).symlink_to(elsewhere)
    assert await store.get(digest) is None
    store.path(digest).unlink()
    os.mkfifo(store.path(digest))
    assert await store.get(digest) is None
    store.path(digest).unlink()
    store.path(digest).mkdir()
    assert await store.get(digest) is None


async def test_an_unused_blob_can_be_found_by_its_age(store: BlobFolder) -> None:
    digest = await store.put(a_png(), "image/png")
    os.utime(store.path(digest), (0, 0))
    await store.get(digest)
    assert store.path(digest).stat().st_mtime > 0


async def test_the_doctor_shows_the_size_of_the_folder_and_how_to_remove_unused_blobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, folder = tmp_path / "a disk", tmp_path / "the state" / "blobs"
    disk.mkdir()
    folder.parent.mkdir()
    folder.symlink_to(disk)
    store = BlobFolder(folder)
    assert blob_checks(folder) == []
    old, new = [await store.put(a_png(colour=colour), "image/png") for colour in (1, 2)]
    (check,), size = blob_checks(folder), len(a_png(colour=1)) + len(a_png(colour=2))
    assert check_lines(check) == [f"✓ blobs: 2 pictures and documents, {size} bytes, in {folder}"]
    monkeypatch.setattr(doctor, "LARGE_STORE_BYTES", size)
    os.utime(store.path(old), (0, 0))
    _, remedy = check_lines(blob_checks(folder)[0])
    subprocess.run(["sh", "-c", remedy.partition(": ")[2]], check=True)
    assert (await store.get(old), await store.get(new)) == (None, a_png(colour=2))
    assert [check.detail.partition(",")[0] for check in blob_checks(folder)] == ["1 picture or document"]


def test_the_doctor_finds_a_folder_of_blobs_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("")
    (check,) = blob_checks(tmp_path / "blobs")
    assert not check.ok
    assert f"{tmp_path / 'blobs'} cannot be read: Not a directory." in check.detail


async def test_many_put_the_same_bytes_at_once(store: BlobFolder) -> None:
    assert len({*await asyncio.gather(*(store.put(a_png(), "image/png") for _ in range(50)))}) == 1
    path = store.path(digest_of(a_png()))
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("segment", [b"\xff", b"\xff\xe0\x00\x02", b"\xff\x01\x00\x00"])
def test_a_hostile_jpeg_takes_no_time(segment: bytes) -> None:
    began = time.process_time()
    loaded = loaded_media(Media(b"\xff\xd8" + segment * (3_000_000 // len(segment))))
    assert (loaded.width, time.process_time() - began < 0.1) == (0, True)


@pytest.mark.parametrize("digest", ["sha256:../../x", "../x", "sha256:" + "0" * 63, f"sha256:{'0' * 64}\n", ""])
async def test_no_other_name_leads_into_the_folder(store: BlobFolder, digest: str) -> None:
    with pytest.raises(ValueError, match="is no digest"):
        await store.get(digest)


async def test_an_output_has_a_line_and_a_reference_for_each_picture(store: BlobFolder) -> None:
    output = await with_stored_media(output_with_media("The chart:", [Media(a_png(), "c.png")]), store)
    size = len(a_png())
    reference = {"kind": "image", "media_type": "image/png", "digest": digest_of(a_png()), "size": size}
    reference |= {"name": "c.png", "width": 4, "height": 3}
    assert output.model_dump() == {"content": f"The chart:\n[image c.png, 4x3, {size} bytes]", "media": [reference]}
    assert ToolOutput.model_validate(output.model_dump()) == output
    assert await store.get(digest_of(a_png())) == a_png()


async def test_a_picture_too_many_is_counted_and_an_unusable_one_named(store: BlobFolder) -> None:
    given = [Media(a_png(colour=n)) for n in range(MAX_RESULT_MEDIA + 2)]
    output = await with_stored_media(output_with_media("", [*given, Media(b"no", "b.png")]), store)
    assert len(output.media) == MAX_RESULT_MEDIA
    assert output.content.startswith("['b.png': is no PNG")
    assert output.content.endswith(f"[2 more left out: a result has at most {MAX_RESULT_MEDIA}]")


async def test_a_result_survives_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = BlobFolder(tmp_path / "file" / "blobs")
    output = await with_stored_media(output_with_media("Done.", [Media(a_png(), "c.png")]), blocked)
    words = f"[The image 'c.png' (image/png, {len(a_png())} bytes) could not be kept: Not a directory]"
    assert output.model_dump() == f"Done.\n{words}"


@pytest.mark.parametrize("media", [7, "x", [], [{"url": "x"}], [{"kind": "image", "digest": "sha256:../x"}]])
def test_other_makers_may_mean_something_else_by_media(media: Any) -> None:
    assert ToolOutput.model_validate({"content": "x", "media": media}).model_dump() == "x"


async def test_files_bytes_and_references_can_be_attached(store: BlobFolder, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(a_png())
    kept = await kept_attachments([tmp_path / "a.png", a_png(colour=1), Media(a_png(colour=2), "c")], store)
    assert [each.name for each in kept] == ["a.png", "", "c"]
    again = await kept_attachments([kept[0], kept[1].model_dump()], store)
    assert again == kept[:2]
    assert parse_input({"task": "t", "attachments": [kept[0].model_dump(exclude_unset=True)]}).attachments == kept[:1]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param(["none.png"], "'none.png': cannot be read: No such file", id="missing"),
        pytest.param([b"text"], "is no PNG", id="text"),
        pytest.param([{"digest": "x", "media_type": "image/png", "size": 1}], "digest", id="digest"),
        pytest.param([a_png()] * 21, "there are 21, and the limit is 20", id="many"),
        pytest.param("a.png", "one is given, not a list", id="no list"),
        pytest.param(["/dev"], "'/dev': cannot be read: Is a directory", id="folder"),
        pytest.param(["/dev/null"], "'/dev/null': cannot be read: Not a regular file", id="device"),
        pytest.param(["a\0b"], "cannot be read: embedded null byte", id="NUL"),
        pytest.param([Media(cast("bytes", "x"), "a.png")], "'a.png': is str, not bytes", id="text as bytes"),
        pytest.param([None], "is NoneType, not bytes", id="nothing"),
        pytest.param(5, "one is given, not a list", id="a number"),
    ],
)
async def test_an_attachment_that_cannot_be_used_is_refused(store: BlobFolder, given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        await kept_attachments(given, store)


async def test_a_pipe_is_refused_without_waiting_for_a_writer(store: BlobFolder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InvalidInput, match="cannot be read: Not a regular file"):
        await kept_attachments([tmp_path / "pipe.png"], store)


async def test_a_path_may_begin_with_the_home_folder(
    store: BlobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.png").write_bytes(a_png())
    assert [each.name for each in await kept_attachments(["~/a.png"], store)] == ["a.png"]


@pytest.mark.parametrize("blocks", ["the folder", "the blob"])
async def test_a_store_that_cannot_be_written_is_named(tmp_path: Path, blocks: str) -> None:
    store = BlobFolder(tmp_path / "blobs")
    if blocks == "the folder":
        (tmp_path / "blobs").write_text("")
    else:
        store.path(digest_of(a_png())).mkdir(parents=True)
    problem = rf"the content: cannot be kept: {tmp_path / 'blobs'}: .+\. Make room in the store, or repair it"
    with pytest.raises(InvalidInput, match=problem):
        await kept_attachments([a_png()], store)


class Broken(MemoryBlobs):
    """A store of an application that keeps nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def put(self, data: bytes, media_type: str) -> str:
        raise self.error


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        pytest.param(RuntimeError("down\nfor long"), "RuntimeError: down for long", id="text on two lines"),
        pytest.param(KeyError("bucket"), "KeyError: 'bucket'", id="key"),
        pytest.param(TimeoutError(), "TimeoutError", id="no text"),
        pytest.param(ConnectionRefusedError(111, "refused"), "refused", id="error of the system"),
    ],
)
async def test_any_error_of_an_own_store_names_the_attachment(error: Exception, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await kept_attachments([Media(a_png(), "a.png")], Broken(error))
    remedy = "Make room in the store, or repair it"
    assert str(refused.value) == f"attachments: 'a.png': cannot be kept: {problem}. {remedy}"
    assert refused.value.__cause__ is error


async def test_a_reference_in_an_input_is_checked(store: BlobFolder) -> None:
    kept = Attachment.of(await keep_media(Media(a_png()), store))
    with pytest.raises(InvalidInput, match="media_type"):
        parse_input({"task": "t", "attachments": [kept.model_dump() | {"media_type": "text/html"}]})
