"""Signs messages by the Standard Webhooks convention: HMAC-SHA256 over id, time and body."""

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from dataclasses import dataclass, field
from hashlib import sha256

PREFIX = "whsec_"
"""The prefix of a base64 secret."""

MIN_KEY_BYTES = 24
"""The convention's minimum. A shorter key could be guessed."""


@dataclass(frozen=True)
class SigningKey:
    """A key that only the sender and the receiver know."""

    key: bytes = field(repr=False)

    @classmethod
    def from_secret(cls, secret: str) -> "SigningKey":
        """Read a secret: `whsec_` and base64, or else the text itself.

        Raises:
            ValueError: It is no base64, or too short. The message does not contain it.
        """
        key = _decoded_base64(secret.removeprefix(PREFIX)) if secret.startswith(PREFIX) else secret.encode()
        if len(key) < MIN_KEY_BYTES:
            raise ValueError(f"has fewer than {MIN_KEY_BYTES} bytes")
        return cls(key)

    def headers(self, message_id: str, at: int, body: bytes) -> dict[str, str]:
        """Return the headers of a body that is sent at this second since the epoch."""
        signed = b".".join((message_id.encode(), str(at).encode(), body))
        signature = b64encode(hmac.new(self.key, signed, sha256).digest()).decode()
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(at),
            "webhook-signature": f"v1,{signature}",
        }


def _decoded_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Error:
        raise ValueError(f"is not base64 behind {PREFIX}") from None
