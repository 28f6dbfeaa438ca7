"""Delivers the answer of a goal after its end: to a file, the knowledge store, a signed webhook, a chat, or by e-mail.

An e-mail is never repeated after a server may have accepted it.
"""

import asyncio
import json
import re
import smtplib
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import sha256
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters.threads import StopSignal
from orga.activities.adapters.tools.file_changes import replace_file
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.webhook.post import (
    ReceiverAnswer,
    SigningKey,
    WebhookPost,
    without_links,
    without_markup,
    without_mentions,
)
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.activities.ports import NotifyError, RunKey, ToolError
from orga.activities.text.characters import without_invisible, without_sequences
from orga.workflows.types.goals.deliveries import GOAL_ID, DeliveryRequest, full_answer_location
from orga.workflows.types.knowledge import Behalf, KnowledgeItem
from orga.workflows.types.text import one_line


def outcome_heading(request: DeliveryRequest, run: RunKey) -> str:
    """Return one line with the goal, and why and how surely it ended."""
    ended = f"{request.reason} ({request.detail})" if request.detail else request.reason
    return one_line(f"{request.goal}: {ended}, confidence {request.confidence:.2f} [{run.workflow_id}]", 600)


def visible_answer(request: DeliveryRequest) -> str:
    """Return the answer without invisible characters and terminal sequences."""
    return without_invisible(without_sequences(request.text)[0])[0]


def shortened_text(text: str, most: int, size: int, run: RunKey) -> str:
    """Return the text, or its beginning and a note about the whole answer, which has `size` characters.

    `most` counts UTF-16 characters, as chat systems do.
    """
    if _utf16_length(text) <= most:
        return text
    pointer = f"\n\n[cut: {size:,} characters in all; {full_answer_location(run.workflow_id)}]"
    room = most - _utf16_length(pointer)
    return text.encode("utf-16-le", "replace")[: room * 2].decode("utf-16-le", "ignore") + pointer


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2


_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class FileDelivery:
    """Writes the answer unchanged. As for each write, the file must be inside the root and must not be a rule."""

    root: FileRoot
    path: str
    """The path relative to the root, with a placeholder for the goal's id."""

    is_repeatable = True
    """A repetition writes the same file."""

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        path = self.path.replace(GOAL_ID, file_name_part(run.workflow_id))
        text = request.text if request.text.endswith("\n") else f"{request.text}\n"
        try:
            await replace_file(self.root, path, text.encode("utf-8", "replace"))
        except ToolError as error:
            raise NotifyError(str(error), kind=error.kind, retryable=error.retryable) from None


def file_name_part(goal_id: str) -> str:
    """Return the id as a part of a file name. The starter of a goal chooses its id, which may be a path."""
    if _SAFE_NAME.fullmatch(goal_id):
        return goal_id
    return f"goal-{sha256(goal_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


MAX_MEMORY_CHARS = 20_000
"""Characters of an answer. Recall shows only a part of a long one."""


@dataclass(frozen=True)
class MemoryDelivery:
    """Stores the answer as a memory for the goal's user, or for its tenant if it names no user."""

    store: KnowledgeStore

    is_repeatable = True
    """The store keeps one item for each key."""

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        behalf = request.behalf or Behalf()
        text = shortened_text(visible_answer(request), MAX_MEMORY_CHARS, request.size, run)
        item = KnowledgeItem(
            kind="memory",
            text=f"Goal: {request.goal}\nEnded: {request.reason}\n{text}",
            scope="user" if behalf.reader.user else "tenant",
            owner=behalf.reader,
            key=request.key,
            confidence=min(max(request.confidence, 0.0), 1.0),
            provenance=behalf.provenance(f"goal of {request.agent}", run.workflow_id),
        )
        try:
            await self.store.store([item])
        except KnowledgeError as error:
            raise NotifyError(str(error), kind=error.kind, retryable=error.retryable) from None


TELEGRAM_CHARS = 3_000
DISCORD_CHARS = 1_800
SLACK_CHARS = 6_000
"""Characters of the message as people read it. Slack accepts 40,000, and counts `&` as five."""

SUPPRESS_EMBEDS = 4
"""A flag of Discord: no previews of links in an answer."""

MessageForm = Callable[[DeliveryRequest, RunKey], dict[str, Any]]


@dataclass(frozen=True)
class PostedDelivery:
    """Sends an answer in the receiver's form. With a key it is signed, so the receiver can recognise a repetition."""

    post: WebhookPost
    form: MessageForm
    key: SigningKey | None = None

    @property
    def is_repeatable(self) -> bool:
        """True if messages are signed. Chat systems show a message as often as they get it."""
        return self.key is not None

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Send the answer. Any status except 2xx counts as refused."""
        content = to_json(self.form(request, run))
        headers: dict[str, str] = {}
        if self.key is not None:
            headers = {**self.key.headers(request.key, int(time.time()), content), "idempotency-key": request.key}
        self.post.raise_for_status(_with_retry_after(await self.post.send(content, headers)))

    async def close(self) -> None:
        await self.post.close()


def webhook_form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
    """Return all fields, with the answer unchanged."""
    fields = request.model_dump(mode="json", exclude={"key", "name", "text"}, exclude_defaults=True)
    named = {"delivery": request.name, "goal_id": run.workflow_id, "run_id": run.run_id}
    return {"text": outcome_heading(request, run), "event": "goal_ended", **named, **fields, "answer": request.text}


def telegram_form(chat_id: int | str) -> MessageForm:
    """Return the form of a message to a chat. It has no `parse_mode`, so nothing in it is markup."""

    def form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
        text = shortened_text(without_mentions(_message_text(request, run)), TELEGRAM_CHARS, request.size, run)
        return {"chat_id": chat_id, "text": text, "link_preview_options": {"is_disabled": True}}

    return form


def discord_form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
    """Return a message that mentions nobody, whatever its text contains."""
    text = shortened_text(without_links(_message_text(request, run)), DISCORD_CHARS, request.size, run)
    return {"content": text, "allowed_mentions": {"parse": []}, "flags": SUPPRESS_EMBEDS}


def slack_form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
    """Return a message for incoming webhooks of Slack and Mattermost, without markup."""
    text = without_markup(shortened_text(_message_text(request, run), SLACK_CHARS, request.size, run))
    return {"text": text, "mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}


def _message_text(request: DeliveryRequest, run: RunKey) -> str:
    return f"{outcome_heading(request, run)}\n\n{visible_answer(request)}"


def _with_retry_after(answer: ReceiverAnswer) -> ReceiverAnswer:
    """Return the answer with the retry delay that Telegram writes into its JSON."""
    if answer.status != 429 or answer.retry_after_s is not None:
        return answer
    try:
        match json.loads(answer.words):
            case {"parameters": {"retry_after": int(wish_s)}} if wish_s >= 0:
                return replace(answer, retry_after_s=float(wish_s))
            case _:
                return answer
    except (ValueError, RecursionError):
        return answer


SILENCE_S = 8.0
"""Seconds that the server may be silent in each step of the exchange."""

ATTEMPT_S = 30.0
"""Seconds for the whole exchange and the wait for a thread."""

MAX_CONCURRENT_SENDS = 4
"""Exchanges of one channel. Each needs a thread of the worker, and mail servers limit connections."""

_SUBJECT_CHARS = 150
_SERVER_TEXT = "the mail server"

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
                message = _mail_message(request, run, self._settings)
                refused = await asyncio.to_thread(_send_message, self._settings, message, stop)
        except TimeoutError:
            raise _unreachable_error(f"no answer within {ATTEMPT_S:g} s", may_have_arrived=stop.stop()) from None
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal_error(max(code for code, _ in error.recipients.values()), "all recipients") from None
        except smtplib.SMTPAuthenticationError as error:
            raise _refusal_error(error.smtp_code, "the login") from None
        except smtplib.SMTPResponseException as error:
            raise _refusal_error(error.smtp_code, "the message") from None
        except smtplib.SMTPNotSupportedError:
            text = f"{_SERVER_TEXT} does not support what the settings require (STARTTLS, or a login method)"
            raise NotifyError(text, kind="ReceiverRefused", retryable=False) from None
        except (smtplib.SMTPException, OSError) as error:
            why = f"no connection ({type(error).__name__})"
            raise _unreachable_error(why, may_have_arrived=stop.stop()) from None
        finally:
            stop.stop()
        if refused:
            text = f"{_SERVER_TEXT} refused {refused} of {len(self._settings.to)} recipients and accepted the others"
            raise NotifyError(text, kind="ReceiverRefused", retryable=False, may_have_arrived=True)


class _TrackedSmtp(smtplib.SMTP):
    """An SMTP exchange that asks `stop` before it sends the message. After that, the message may have arrived."""

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
        with suppress(smtplib.SMTPException, OSError):  # a later error does not take the message back
            connection.quit()
        connection.close()


def _mail_message(request: DeliveryRequest, run: RunKey, settings: MailSettings) -> EmailMessage:
    """Return the message. No text of the model or the starter can begin a header."""
    message = EmailMessage()
    # `EmailMessage` decodes encoded words (RFC 2047), line breaks included, so the subject must not have any.
    message["Subject"] = one_line(f"{request.reason}: {request.goal}", _SUBJECT_CHARS).replace("=?", "= ?")
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.to)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{request.key}@{settings.sender.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{outcome_heading(request, run)}\n\n{visible_answer(request)}\n", charset="utf-8")
    return message


def _refusal_error(code: int, what: str) -> NotifyError:
    text = f"{_SERVER_TEXT} answered {code} to {what}"
    return NotifyError(text, kind="ReceiverRefused", retryable=not 500 <= code < 600)


def _unreachable_error(why: str, *, may_have_arrived: bool) -> NotifyError:
    text = f"{_SERVER_TEXT}: {why}"
    return NotifyError(text, kind="ReceiverUnreachable", retryable=True, may_have_arrived=may_have_arrived)
