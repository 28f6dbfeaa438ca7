"""A model call's input: what is new, and references to the rest. Its size does not grow with the run.

The model call by which a critic reviews.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import model_serializer, model_validator

from orga.workflows.types.agents import Critic
from orga.workflows.types.decision import GroundedDecision
from orga.workflows.types.delegation import Ceiling, DelegateSpec
from orga.workflows.types.digest import EMPTY, digest_of, reference
from orga.workflows.types.goals.deliveries import Channel
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.goals.prompts import PromptTemplates
from orga.workflows.types.input import LoopConfig, Workplace
from orga.workflows.types.messages import Message, shortened
from orga.workflows.types.questions import NotifyEvent
from orga.workflows.types.ranges import Ranges, with_masks, without
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.tiers import RUN, Tier
from orga.workflows.types.tools import ToolSpec


class Setup(Record):
    """What a run works with, recorded once: the result of `prepare`."""

    agent: str
    model: str
    """`provider:model`."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    config: LoopConfig = LoopConfig()
    """The effective config: the input's keys over the agent's over the defaults."""
    delegates: tuple[DelegateSpec, ...] = ()
    """Agents that it may delegate to."""
    decisions: dict[str, GroundedDecision] = {}
    """What it may decide, or has to."""
    critics: tuple[Critic, ...] = ()
    """Who reviews answers and calls."""
    output_schema: dict[str, Any] | None = None
    """What the final answer has to fit."""
    policy: str = "default"
    policy_version: str = ""
    """Of its rules when the run was prepared, where it has any; each verdict names the one that it was made by."""
    build: str = ""
    """Of the worker that prepared the run."""
    loop_version: int = 0
    """Of the loop's rules in that build; 0 of a run from before they had one."""
    gate_execution: Literal["local", "activity"] = "local"
    """An engine that is a server of its own takes an ordinary activity."""
    search_attributes: bool = True
    """Whether the server knows the Orga* attributes; without them an upsert would fail every workflow task."""
    roll_over_events: int = 3_500
    """Events of a history after which the run continues as new; the server suggests it at 4,096."""
    roll_over_bytes: int = 3_000_000
    full_events: int = 25_000
    """Events at which a run ends that could not continue as new; the server terminates it at 51,200, and at 50 MB."""
    full_bytes: int = 25_000_000
    notify: tuple[NotifyEvent, ...] = ()
    """What people outside are told; the worker knows where."""
    workplace: Workplace | None = None
    """Of the worker that prepared the run."""
    deliveries: tuple[Channel, ...] = ()
    """Where the answers of goals may go."""
    prompts: PromptTemplates | None = None
    """Of a goal: the templates that stand in place of the default ones."""
    tiers: dict[str, Tier] = {}
    """The tiers that models were named by: of the `run`, of turns of a goal, of a `critic:NAME`; its models in
    fallback order. The first of the run's is `model`."""
    pipeline: Pipeline | None = None
    """Of a goal that named one: a running goal keeps its own."""

    def models_for(self, what: str = RUN) -> tuple[str, ...]:
        """Return the models to ask, in fallback order; `what` without a tier of its own asks the run's."""
        tier = self.tiers.get(what) or self.tiers.get(RUN)
        return tier.models if tier else (self.model,)

    def with_agent(
        self, agent: str, model: str, instructions: str, tools: tuple[ToolSpec, ...], config: LoopConfig
    ) -> Self:
        """Return the setup of a run of that agent."""
        return replace_fields(
            self, {"agent": agent, "model": model, "instructions": instructions, "tools": tools, "config": config}
        )

    def with_more(
        self,
        delegates: tuple[DelegateSpec, ...] | None,
        decisions: dict[str, GroundedDecision] | None,
        critics: tuple[Critic, ...] | None,
        output_schema: dict[str, Any] | None,
        policy_version: str | None,
    ) -> Self:
        """Return the setup with what only some runs have; None is not written."""
        given = {
            "delegates": delegates,
            "decisions": decisions,
            "critics": critics,
            "output_schema": output_schema,
            "policy_version": policy_version,
        }
        return replace_fields(self, {name: value for name, value in given.items() if value is not None})

    def with_tiers(self, tiers: dict[str, Tier]) -> Self:
        """Return the setup of a run whose models were named by their tiers; none is not written."""
        return replace_fields(self, {"tiers": tiers}) if tiers else self

    def with_pipeline(self, pipeline: Pipeline | None) -> Self:
        """Return the setup of a goal with that pipeline; none is not written."""
        return self if pipeline is None else replace_fields(self, {"pipeline": pipeline})

    def with_model(self, model: str) -> Self:
        """Return the setup with another model."""
        return replace_fields(self, {"model": model})

    def with_workplace(self, workplace: Workplace) -> Self:
        """Return the setup of a worker that is at home there."""
        return replace_fields(self, {"workplace": workplace})

    def with_search_attributes(self, known: bool) -> Self:
        """Return the setup of runs on a server that knows the attributes, or does not."""
        return replace_fields(self, {"search_attributes": known})

    def with_notify(self, events: tuple[NotifyEvent, ...]) -> Self:
        """Return the setup of a worker that tells people outside."""
        return replace_fields(self, {"notify": events})

    def with_deliveries(self, channels: tuple[Channel, ...]) -> Self:
        """Return the setup of a worker that has channels for the answers of goals."""
        return replace_fields(self, {"deliveries": channels})

    def with_prompts(self, prompts: PromptTemplates | None) -> Self:
        """Return the setup of a goal that is asked by these templates; None is not written."""
        return replace_fields(self, {"prompts": prompts}) if prompts else self

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool that is offered under `name`."""
        return next((tool for tool in self.tools if tool.name == name), None)


class MessageRef(Record):
    """One message that the model has not seen: by reference where history holds it, else in full. One field is set.

    Written as that field alone: `8` the reply of iteration 8, `"8.0"` the result of its first call, or the message;
    `{"summary": "8.summary"}` a summary, `{"recall": "8.recall"}` what was recalled. Cut ones are written as what they
    are: `{"result": "8.0", "cut": 9000}`.
    """

    reply: int | None = None
    """The assistant message of that iteration's model call."""
    result: str | None = None
    """The result of the tool activity with that id."""
    message: Message | None = None
    summary: str | None = None
    """The result of the `summarise` activity with that id."""
    recall: str | None = None
    """The block in the result of the `recall_context` activity with that id."""
    cut: int | None = None
    """Bytes of the text that the model is shown, where history holds more than there is room for."""

    def with_cut(self, cut: int) -> Self:
        """Return the reference to a text of which the model is shown so many bytes."""
        return replace_fields(self, {"cut": cut})

    @model_serializer
    def _alone(self) -> Any:
        if self.recall is not None:
            return {"recall": self.recall, **({} if self.cut is None else {"cut": self.cut})}
        if self.cut is not None:
            return {"cut": self.cut, **({"result": self.result} if self.result else {"reply": self.reply})}
        return self.message or self.result or ({"summary": self.summary} if self.summary else self.reply)

    def shown(self, message: Message) -> Message:
        """Return the message that history holds as the model is to see it."""
        return message if self.cut is None else shortened(message, self.cut)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        match value:
            case int():
                return {"reply": value}
            case str():
                return {"result": value}
            case {"role": _}:
                return {"message": value}
            case _:
                return value or {}


@dataclass(frozen=True)
class HashedMessages:
    """Messages and their digest, which goes on where it ended when more are added."""

    messages: tuple[Message, ...] = ()
    digest: str = EMPTY

    def plus(self, messages: tuple[Message, ...]) -> "HashedMessages":
        """Return the chain with these at its end."""
        return HashedMessages((*self.messages, *messages), digest_of(messages, self.digest))

    def without_knowledge(self) -> "HashedMessages":
        """Return the chain without the block of what was recalled."""
        kept = tuple(message for message in self.messages if not message.knowledge)
        return self if len(kept) == len(self.messages) else HashedMessages().plus(kept)

    def compacted(self, drop: Ranges, mask: Ranges, summary: Message | None) -> "HashedMessages":
        """Return the chain without `drop`, its results in `mask` masked; a summary stands where the first went."""
        if not drop and not mask:
            return self
        messages = without(with_masks(self.messages, mask), drop)
        if summary is not None:
            place = drop[0][0]
            messages = (*messages[:place], summary, *messages[place:])
        return HashedMessages().plus(messages)


class ContextRef(Record):
    """A conversation by reference: that of the model call before, compacted, then `news`; its digest is `head`."""

    forget: bool = False
    """Whether the block of what was recalled is left out from now on. It goes ahead of what is counted in ranges."""
    drop: Ranges = ()
    """Messages of the call before that are left out from now on."""
    mask: Ranges = ()
    """Tool results of the call before whose text is left out from now on; indexes as in `drop`."""
    summary: MessageRef | None = None
    """What stands where the first dropped message stood."""
    news: tuple[MessageRef, ...] = ()
    head: str = ""

    def with_compaction(self, drop: Ranges, mask: Ranges, summary: MessageRef | None) -> Self:
        """Return the reference to what is left of the call before; what is empty is not written."""
        given = {"drop": drop, "mask": mask, "summary": summary}
        return replace_fields(self, {name: value for name, value in given.items() if value})

    def with_forget(self) -> Self:
        """Return the reference to the conversation without the block of the call before."""
        return replace_fields(self, {"forget": True})

    def applied(self, base: HashedMessages, resolve: Callable[[MessageRef], Message]) -> HashedMessages:
        """Return what this reference stands for, when `base` is what the call before was about.

        Raises:
            DigestMismatch: It is not what the workflow meant; a wrong context is never sent.
        """
        summary = None if self.summary is None or not self.drop else resolve(self.summary)
        base = base.without_knowledge() if self.forget else base
        kept = base.compacted(self.drop, self.mask, summary)
        chain = kept.plus(tuple(resolve(news) for news in self.news))
        if reference(chain.digest) != self.head:
            raise DigestMismatch(f"the {len(chain.messages)} messages found do not have the digest {self.head}")
        return chain


class DigestMismatch(ValueError):
    """What was found is not what the digest names."""


class ReasonRequest(Record):
    """Input of `reason`."""

    iteration: int
    setup: str = ""
    """Reference of the `Setup`; only in the first call, since it stays the same."""
    context: ContextRef
    max_output_tokens: int | None = None
    """Set where fewer tokens are left than the config allows a reply."""

    def with_setup(self, setup: str) -> Self:
        """Return the first request of a run."""
        return replace_fields(self, {"setup": setup})

    def with_max_output_tokens(self, tokens: int) -> Self:
        """Return the request for a shorter reply."""
        return replace_fields(self, {"max_output_tokens": tokens})


class PrepareRequest(Record):
    """Input of `prepare`: the checked parts of the run's input that choose its setup."""

    agent: str = "default"
    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    config: dict[str, Any] = {}
    """Only the keys that were given."""
    output_schema: dict[str, Any] | None = None
    ceiling: Ceiling = Ceiling()
    """What the run that delegates leaves to this one."""
    depth: int = 0
    workplace: Workplace | None = None
    """What the run was started for; None is any."""
    pipeline: str | None = None
    """The name of a goal's pipeline."""

    def with_ceiling(self, ceiling: Ceiling, depth: int) -> Self:
        """Return the request of a delegated run."""
        return replace_fields(self, {"ceiling": ceiling, "depth": depth})

    def with_workplace(self, workplace: Workplace) -> Self:
        """Return the request of a run that is at home there."""
        return replace_fields(self, {"workplace": workplace})

    def with_pipeline(self, name: str) -> Self:
        """Return the request of a goal with that pipeline."""
        return replace_fields(self, {"pipeline": name})

    def with_output_schema(self, schema: dict[str, Any]) -> Self:
        """Return the request of a run whose answer has to fit that."""
        return replace_fields(self, {"output_schema": schema})


MAX_SUBJECT_BYTES = 200_000
"""A longer text is not reviewed at all: a part that the critic does not see could hide what it is there to find."""


class CritiqueRequest(ReasonRequest):
    """Input of `critique`: the latest model call by reference, and what came of it that is to be reviewed."""

    critic: str
    """Its name; the rest of it stands in the setup."""
    subject: str
    """The answer, or the arguments of a call as JSON."""
    tool: str = ""
    """Of a call."""
    problem: str = ""
    """What was wrong with the verdict before, when it is asked for once more."""
