"""A mail server in this process: it speaks SMTP, keeps its messages, and answers as a test defines."""

import asyncio
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.hold import PATIENCE_S

USER, PASSWORD = "orga", "planted-mail-password"
OK, BYE = "250 OK", "221 Bye"
GONE = "gone"
"""Instead of an answer: the message is kept, and the connection is closed."""


@dataclass
class MailServer:
    """Answers complete messages in order, and repeats the last answer."""

    answers: list[str]
    refused: dict[str, str]
    bye: str
    """The answer to QUIT."""
    stands_at: str | None
    """The command after which it does not answer until `go`."""
    go: Event = field(default_factory=Event)
    left: Semaphore = field(default_factory=lambda: Semaphore(0))
    """Set when a client has sent QUIT."""
    port: int = 0
    received: list[EmailMessage] = field(default_factory=list[EmailMessage])
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    tried: int = 0

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        """Accept a sender once it is allowed."""
        envelope.mail_from = address
        return await self._in_time("MAIL", OK)

    async def handle_QUIT(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        """Answer QUIT."""
        self.left.release()
        return self.bye

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        """Accept a recipient, or refuse it."""
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return OK

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        """Accept a message, or refuse it."""
        answer = self.answers[min(self.tried, len(self.answers) - 1)]
        self.tried += 1
        if answer in {OK, GONE}:
            message = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(message, EmailMessage)
            self.received.append(message)
            self.envelopes.append((envelope.mail_from, list(envelope.rcpt_tos)))
        if answer == GONE:
            server.transport.abort()
        return await self._in_time("DATA", answer)

    async def _in_time(self, command: str, answer: str) -> str:
        if command == self.stands_at:
            await asyncio.to_thread(self.go.wait, PATIENCE_S)
        return answer


class _OnAFreePort(Controller):
    def _trigger_server(self) -> None:
        """Connect to the address it serves on, because the port is known only now."""
        server: Any = self.server
        self.port = server.sockets[0].getsockname()[1]
        super()._trigger_server()


def _log_in(server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
    is_known = isinstance(given, LoginPassword) and (given.login, given.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_known, handled=False)


@contextmanager
def mail_server(
    *answers: str,
    refused: dict[str, str] | None = None,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
    needs_login: bool = False,
    bye: str = BYE,
    stands_at: str | None = None,
) -> Generator[MailServer]:
    """Serve on a free port of the loopback."""
    server = MailServer(list(answers) or [OK], refused or {}, bye, stands_at)
    login: dict[str, Any] = {"authenticator": _log_in, "auth_required": True} if needs_login else {}
    options: dict[str, Any] = {**login, **({"tls_context": starttls, "require_starttls": True} if starttls else {})}
    controller = _OnAFreePort(server, hostname="127.0.0.1", port=0, ssl_context=tls, **options)
    controller.start()
    server.port = controller.port
    try:
        yield server
    finally:
        controller.stop()


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS context of a server at 127.0.0.1, and that of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    shown, hidden = folder / "certificate.pem", folder / "key.pem"
    shown.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    hidden.write_bytes(key.private_bytes(*pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(shown, hidden)
    return server, ssl.create_default_context(cafile=str(shown))
