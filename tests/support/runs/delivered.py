"""Goals whose answers are delivered, and the traces in their histories."""

from collections.abc import Mapping
from typing import Any

from temporalio.client import WorkflowHistory

from orga.activities.adapters.deliveries.targets import PostedDelivery, discord_form, webhook_form
from orga.activities.adapters.webhook.post import SigningKey, WebhookPost
from orga.workflows.types.goals.deliveries import Channel, DeliveryKind
from orga.workflows.types.names import DELIVER
from orga.workflows.types.setup import Setup
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.loop import WORKER_FACTS
from tests.support.web.webhook_receiver import SECRET, Receiver


def delivery_setup(default: bool = True, **kinds: DeliveryKind) -> Setup:
    """Return the setup of a worker with these channels."""
    channels = tuple(Channel(name=name, kind=kind, default=default) for name, kind in kinds.items())
    return WORKER_FACTS.with_deliveries(channels)


def a_hook(receiver: Receiver) -> PostedDelivery:
    """Return a signed webhook."""
    return PostedDelivery(WebhookPost(receiver.url, "the webhook"), webhook_form, SigningKey.from_secret(SECRET))


def a_room(receiver: Receiver) -> PostedDelivery:
    """Return a chat channel, which shows a message as often as it gets it."""
    return PostedDelivery(WebhookPost(receiver.url, "Discord"), discord_form)


def one_step_model(**turns: Any) -> GoalModel:
    """Return a model of one good step, unless other turns are given."""
    return GoalModel(**{"plan": says(steps=[a_step("a", at=1)]), "evaluate": evaluation_reply("a"), **turns})


def outcomes(result: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return status and attempts of the deliveries, by name."""
    return {each["name"]: (each["status"], each["attempts"]) for each in result["deliveries"]}


def delivery_activity_ids(history: WorkflowHistory) -> list[str]:
    """Return the ids of the delivery activities."""
    found = [event.activity_task_scheduled_event_attributes for event in history.events]
    return [each.activity_id for each in found if each.activity_type.name == DELIVER]
