"""The events of a journal: what each tells, and its data."""

from typing import NamedTuple


class EventDescription(NamedTuple):
    """One event."""

    told: str
    data: str
    """Keys of its data; what is rare stands there only where there is something to say."""


EVENTS: dict[str, EventDescription] = {
    "Started": EventDescription("The run begins, or a fork goes on from another's past.", "task input forked_from"),
    "Prepared": EventDescription(
        "What the run works with is settled: a worker has resolved agent, model, tools and policy.",
        "model instructions tools config policy policy_version build loop_version prompts",
    ),
    "PreHydrationComplete": EventDescription(
        "What the task refers to was looked up before the first reasoning step.",
        "references_found references_resolved references_failed resolved failed unresolvable total_tokens references",
    ),
    "KnowledgeRecalled": EventDescription(
        "What earlier runs have left was recalled, ahead of a step or by a tool.",
        "terms items block taint place error",
    ),
    "KnowledgeStored": EventDescription(
        "An item of knowledge was stored, or could not be.", "place id kind change contradicts error"
    ),
    "ContextCompacted": EventDescription(
        "The model is no longer sent some messages or results: they are too old, or a content filter refused them.",
        "strategy messages_dropped messages_masked messages_replaced error summary usage fields_cut unused",
    ),
    "ModelFailedOver": EventDescription("A model gave way to the next of its tier.", "from to why"),
    "ReasoningComplete": EventDescription(
        "The model's reply: calls, or an answer. A goal asks for a `turn`: `goal_plan`, `goal_decide`, …",
        "actions finish usage cost_usd model turn prompt left_out repaired",
    ),
    "PolicyEvaluated": EventDescription(
        "The gate's verdict on each proposal; `error` where it could not decide, which denies.",
        "action_count denied_count places verdicts calls about error",
    ),
    "ToolsDispatched": EventDescription(
        "Calls that the gate let through are carried out, `duration_s` after the reply that makes them.",
        "tool_count tools duration_s",
    ),
    "ObservationsCollected": EventDescription(
        "What became of every call: `ok`, `failed`, `cancelled`, `unfinished` or `not_run`.",
        "observation_count outcomes",
    ),
    "ApprovalRequested": EventDescription(
        "The run waits for a person: for a yes to a call, a way out of a failure, or more budget.",
        "kind id place tool call_id arguments reason approvers expires_at question queue",
    ),
    "ApprovalResolved": EventDescription(
        "A person, or the time, has decided it.", "kind id place tool approved approver choice by reason answer"
    ),
    "QuestionAsked": EventDescription("The model or a goal asks people something.", "id question place choices"),
    "QuestionAnswered": EventDescription("They have answered.", "id question choice answer by reason place"),
    "RecoveryTriggered": EventDescription(
        "A call that failed was retried, replaced, skipped, given up or decided on.",
        "tool call_id strategy error outcome attempts calls letter_id text",
    ),
    "StepLimitReached": EventDescription(
        "A step that got nowhere is stopped: a tool with its arguments.", "step_id tool attempts reason"
    ),
    "CircuitOpened": EventDescription(
        "A tool that kept failing is left alone for a while.", "tool scope failures recovery_s cause"
    ),
    "CircuitClosed": EventDescription("It works again.", "tool scope"),
    "SagaEnded": EventDescription("A saga was carried out, or taken back.", "place call_id outcome error calls"),
    "DecisionGrounded": EventDescription(
        "A declared rule has decided on recorded facts.",
        "place decision outcome rule fields facts declaration rationale",
    ),
    "CritiqueEvaluated": EventDescription(
        "A critic has reviewed an answer or a call, and what follows from that.",
        "kind critic place target call_id score approved says_approved dimensions reviewer round then usage feedback",
    ),
    "DelegationStarted": EventDescription(
        "Another agent works on a part; its journal stands between this and the end.",
        "tool call_id agent task workflow_id",
    ),
    "DelegationEnded": EventDescription("It has ended.", "tool call_id workflow_id reason detail usage"),
    "InterventionReceived": EventDescription(
        "Somebody has steered, paused, resumed, aborted or rewound the run, or raised its budget.",
        "kind text known refused to_iteration steer left of bytes kept",
    ),
    "InterventionRefused": EventDescription("An intervention that the run could not take in.", "kind reason"),
    "NotificationFailed": EventDescription("People could not be told of what waits for them.", "about error"),
    "PlanMade": EventDescription("A goal has its plan.", "steps pipeline kind"),
    "PlanAdjusted": EventDescription("The plan is another one from here on.", "by steps"),
    "StepExecuted": EventDescription("A step of the plan was carried out.", "step skill place status error"),
    "StepEvaluated": EventDescription("What it brought has its score.", "step score quality label by"),
    "StepOverridden": EventDescription("A person has put another tool in place of a step's.", "step skill"),
    "MemoryCompressed": EventDescription("What a goal keeps in mind was made shorter.", "before after taken"),
    "DecisionMade": EventDescription("What a goal does next.", "action by confidence reason"),
    "Delivered": EventDescription("The answer of a goal was brought to a channel.", "name kind attempts"),
    "DeliveryFailed": EventDescription(
        "It could not be brought there; `orga requeue` sends it again.", "name kind error attempts"
    ),
    "TurnStarted": EventDescription(
        "A turn of a session begins, with budgets of its own; `turn` is its number.", "turn message"
    ),
    "TurnEnded": EventDescription("It has ended; the session goes on.", "turn reason detail iterations usage"),
    "BuildChanged": EventDescription("Workflow code of another build decides from here on.", "before build"),
    "PastMissing": EventDescription("The server has no longer what came before.", "detail"),
    "Terminated": EventDescription(
        "The run has ended.", "reason detail iterations usage tool_calls duration_s conversation_digest"
    ),
}
"""By name, in the order in which a run comes to them."""
