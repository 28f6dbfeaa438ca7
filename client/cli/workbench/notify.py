"""`orga notify`: test the webhook that notifies people of open questions."""

import os
from uuid import uuid4

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.config.file import load_config
from orga.client.errors import OrgaError

app = typer.Typer(
    no_args_is_help=True,
    epilog=r"\[notify] in orga.toml sets the address. The guide is docs/notifications.md.",
    rich_markup_mode="rich",
)


@app.callback()
def _group() -> None:
    """Make `test` a command of a group. Typer would otherwise turn the only command into the group itself."""


@app.command("test")
async def send_sample(*, json: Json = False, config: ConfigFile = None) -> int:
    """Send a signed sample to the webhook as a worker would, and print the answer. Exit code 6 means it was not 2xx.

    Example: orga notify test
    """
    from orga.activities.adapters.webhook.post import WebhookNotifier
    from orga.activities.ports import NotifyError, RunKey
    from orga.client.config.delivery_settings import notify_settings
    from orga.workflows.types.questions import Notification

    with usage_errors():
        settings = notify_settings(load_config(config).notify, os.environ)
    if settings is None:
        raise UsageError("[notify] url: is not set, so nobody is notified. See docs/notifications.md")
    question = "this is a test, nothing waits"
    sample = Notification(message_id=f"msg_{uuid4().hex}", event="test", agent="orga", question=question)
    webhook = WebhookNotifier(settings)
    try:
        answer = await webhook.send(sample, RunKey("agent-test", ""))
    except NotifyError as error:
        raise OrgaError(str(error)) from None
    finally:
        await webhook.close()
    ok = 200 <= answer.status < 300
    if json:
        write_json({"ok": ok, "status": answer.status, "answer": answer.words})
    else:
        write_result(f"{answer.status} {answer.words}".strip())
    write_note("the receiver accepted it" if ok else "the receiver did not accept it; redirects are not followed")
    return ExitCode.COMPLETED if ok else ExitCode.FAILED
