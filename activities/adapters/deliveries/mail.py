"""E-mail: one message over SMTP, never repeated after a server may have accepted it."""

import asyncio
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Literal

from orga.activities.adapters.deliveries.targets import outcome_heading, visible_answer
from orga.activities.adapters.tools.call_threads import StopSignal
from orga.activities.ports import NotifyError, RunKey
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.text import one_line

SILENCE_S = 8.0
"""Seconds of silence by the server, in each step of the exchange."""

ATTEMPT_S = 30.0
"""Seconds for the whole exchange and the wait for a thread."""

MAX_CONCURRENT_SENDS = 4
"""Exchanges of one channel. Each needs a thread of the worker, and mail servers limit connections."""

SUBJECT_CHARS = 150
SERVER_TEXT = "the mail server"

Security = Literal["starttls", "tls", "none"]


@dataclass(frozen=True)
class MailSettings:
    host: str
    port: int
    security: Security
    sender: str
    to: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    trust: ssl.SSLContext | None = field(default=None, repr=False)
    """The trusted certificates. None means those of the system."""


class EmailDelivery:
    """Sends the whole answer as plain text."""

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_SENDS)

    is_repeatable = False
    """Few mailboxes drop a second message with the same `Message-ID`."""

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Send the message. It counts as delivered if the server accepts it for all recipients."""
        stop = StopSignal()  # the thread cannot be ended in any other way
        try:
            async with asyncio.timeout(ATTEMPT_S), self._slots:
                refused = await asyncio.to_thread(
                    _send_message, self._settings, mail_message(request, run, self._settings), stop
                )
        except TimeoutError:
            raise _unreachable_error(f"no answer within {ATTEMPT_S:g} s", may_have_arrived=stop.stop()) from None
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal_error(max(code for code, _ in error.recipients.values()), "all recipients") from None
        except smtplib.SMTPAuthenticationError as error:
            raise _refusal_error(error.smtp_code, "the login") from None
        except smtplib.SMTPResponseException as error:
            raise _refusal_error(error.smtp_code, "the message") from None
        except smtplib.SMTPNotSupportedError:
            text = f"{SERVER_TEXT} does not support what the settings require (STARTTLS, or a login method)"
            raise NotifyError(text, kind="ReceiverRefused", retryable=False) from None
        except (smtplib.SMTPException, OSError) as error:
            why = f"no connection ({type(error).__name__})"
            raise _unreachable_error(why, may_have_arrived=stop.stop()) from None
        finally:
            stop.stop()
        if refused:
            text = f"{SERVER_TEXT} refused {refused} of {len(self._settings.to)} recipients and accepted the others"
            raise NotifyError(text, kind="ReceiverRefused", retryable=False, may_have_arrived=True)


class _TrackedSmtp(smtplib.SMTP):
    """An SMTP exchange that asks `stop` before it sends the message itself. After that it may have arrived."""

    stop: StopSignal

    def data(self, msg: Any) -> Any:
        self.stop.begin_effect()
        return super().data(msg)


class _TrackedSmtpTls(_TrackedSmtp, smtplib.SMTP_SSL):
    """The same exchange, with TLS from the first byte."""


def _send_message(settings: MailSettings, message: EmailMessage, stop: StopSignal) -> int:
    """Send the message, and return how many recipients were refused."""
    own_host = settings.sender.partition("@")[2]
    trust = None if settings.security == "none" else settings.trust or ssl.create_default_context()
    if settings.security == "tls":
        connection = _TrackedSmtpTls(settings.host, settings.port, own_host, timeout=SILENCE_S, context=trust)
    else:
        connection = _TrackedSmtp(settings.host, settings.port, own_host, timeout=SILENCE_S)
    connection.stop = stop
    try:
        if settings.security == "starttls":
            connection.starttls(context=trust)
        if settings.username is not None and settings.password is not None:
            connection.login(settings.username, settings.password)
        return len(connection.send_message(message))
    finally:
        with suppress(smtplib.SMTPException, OSError):  # an error after the message does not undo it
            connection.quit()
        connection.close()


def mail_message(request: DeliveryRequest, run: RunKey, settings: MailSettings) -> EmailMessage:
    """Return the message. No text of the model or the starter can begin a header."""
    message = EmailMessage()
    message["Subject"] = _subject_line(request)
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.to)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{request.key}@{settings.sender.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{outcome_heading(request, run)}\n\n{visible_answer(request)}\n", charset="utf-8")
    return message


def _subject_line(request: DeliveryRequest) -> str:
    """Return the subject without encoded words (RFC 2047): `EmailMessage` decodes them, line breaks included."""
    return one_line(f"{request.reason}: {request.goal}", SUBJECT_CHARS).replace("=?", "= ?")


def _refusal_error(code: int, what: str) -> NotifyError:
    return NotifyError(
        f"{SERVER_TEXT} answered {code} to {what}", kind="ReceiverRefused", retryable=not 500 <= code < 600
    )


def _unreachable_error(why: str, *, may_have_arrived: bool) -> NotifyError:
    return NotifyError(
        f"{SERVER_TEXT}: {why}", kind="ReceiverUnreachable", retryable=True, may_have_arrived=may_have_arrived
    )
