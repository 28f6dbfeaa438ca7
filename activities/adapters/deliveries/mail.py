"""E-mail: one message over SMTP, known by its `Message-ID` where it arrives twice."""

import asyncio
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Literal

from orga.activities.adapters.deliveries.words import heading, shown_text
from orga.activities.ports import NotifyError, RunKey
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.text import one_line

SILENCE_S = 8.0
"""Of the server, in each step of the exchange."""

ATTEMPT_S = 30.0
SUBJECT_CHARS = 150
SERVER = "the mail server"

Security = Literal["starttls", "tls", "none"]


@dataclass(frozen=True)
class MailSettings:
    """Whose server, and who writes to whom."""

    host: str
    port: int
    security: Security
    sender: str
    to: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    trust: ssl.SSLContext | None = field(default=None, repr=False)
    """What certificates are checked against; None: what the system trusts."""


class EmailDelivery:
    """Sends the whole answer as plain text."""

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings

    @property
    def is_repeatable(self) -> bool:
        """Mailboxes know a message by its id."""
        return True

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Send it; taken is what the server takes for all who are to get it."""
        message = mail(request, run, self._settings)
        try:
            async with asyncio.timeout(ATTEMPT_S):
                refused = await asyncio.to_thread(self._sent, message)
        except TimeoutError:
            raise _unreachable(f"no answer within {ATTEMPT_S:g} s") from None
        except smtplib.SMTPRecipientsRefused as error:
            raise _refused(max(code for code, _ in error.recipients.values()), "all recipients") from None
        except smtplib.SMTPAuthenticationError as error:
            raise _refused(error.smtp_code, "the login") from None
        except smtplib.SMTPResponseException as error:
            raise _refused(error.smtp_code, "the message") from None
        except smtplib.SMTPNotSupportedError:
            text = f"{SERVER} lacks what the settings ask for (STARTTLS, or a way to log in)"
            raise NotifyError(text, kind="ReceiverRefused", retryable=False) from None
        except (smtplib.SMTPException, OSError) as error:
            raise _unreachable(f"no connection ({type(error).__name__})") from None
        if refused:  # the others have it: no attempt follows
            text = f"{SERVER} refused {refused} of {len(self._settings.to)} recipients"
            raise NotifyError(text, kind="ReceiverRefused", retryable=False)

    def _sent(self, message: EmailMessage) -> int:
        """Send, and return how many of the recipients were refused."""
        settings = self._settings
        name = settings.sender.partition("@")[2]
        trust = settings.trust or ssl.create_default_context()
        if settings.security == "tls":
            connection = smtplib.SMTP_SSL(settings.host, settings.port, name, timeout=SILENCE_S, context=trust)
        else:
            connection = smtplib.SMTP(settings.host, settings.port, name, timeout=SILENCE_S)
        with connection:
            if settings.security == "starttls":
                connection.starttls(context=trust)
            if settings.username is not None and settings.password is not None:
                connection.login(settings.username, settings.password)
            return len(connection.send_message(message))


def mail(request: DeliveryRequest, run: RunKey, settings: MailSettings) -> EmailMessage:
    """Return the message; no word of the model or the starter begins a header."""
    message = EmailMessage()
    message["Subject"] = one_line(f"{request.reason}: {request.goal}", SUBJECT_CHARS)
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.to)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{request.key}@{settings.sender.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{heading(request, run)}\n\n{shown_text(request)}\n", charset="utf-8")
    return message


def _refused(code: int, what: str) -> NotifyError:
    return NotifyError(f"{SERVER} answered {code} to {what}", kind="ReceiverRefused", retryable=not 500 <= code < 600)


def _unreachable(why: str) -> NotifyError:
    return NotifyError(f"{SERVER}: {why}", kind="ReceiverUnreachable", retryable=True)
