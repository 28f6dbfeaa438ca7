"""Small pictures as files have them."""

import struct
import zlib


def a_png(width: int = 4, height: int = 3, colour: int = 0) -> bytes:
    """Return a PNG of one shade of grey."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    header = struct.pack("!IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([colour]) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", rows) + part(b"IEND", b"")


A_GIF = b"GIF89a" + struct.pack("<HH", 5, 6) + b"\0\0\0;"
A_JPEG = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08" + struct.pack("!HH", 7, 8) + b"\x01\x01\x11\0\xff\xd9"
A_WEBP = b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (9 - 1).to_bytes(3, "little") + (10 - 1).to_bytes(3, "little")
