"""The events of a journal: their meaning and their data."""

from typing import NamedTuple


class EventDescription(NamedTuple):
    """One event."""

    told: str
    data: str
    """Keys of its data. Rare keys are present only if they have a value."""


EVENTS: dict[str, EventDescription] = {
    "Started": EventDescription(
        "The run begins, or a fork continues from another run's past.", "task input forked_from"
    ),
    "Prepared": EventDescription(
        "A worker has resolved agent, model, tools and policy, and the run keeps this setup.",
        "model instructions tools config policy policy_version build loop_version prompts",
    ),
    "PreHydrationComplete": EventDescription(
        "References in the task were looked up before the first reasoning step.",
        "references_found references_resolved references_failed resolved failed unresolvable total_tokens references",
    ),
    "KnowledgeRecalled": EventDescription(
        "Knowledge of earlier runs was recalled, before a step or by a tool.",
        "terms items block taint place error",
    ),
    "KnowledgeStored": EventDescription(
        "An item of knowledge was stored, or could not be.", "place id kind change contradicts error"
    ),
    "ContextCompacted": EventDescription(
        "The model is no longer sent some messages or results: they are too old, or a content filter refused them.",
        "strategy messages_dropped messages_masked messages_replaced error summary usage fields_cut unused",
    ),
    "ModelFailedOver": EventDescription("A model failed, and the next of its tier took over.", "from to why"),
    "ReasoningComplete": EventDescription(
        "The model's reply: calls, or an answer. A goal asks for a `turn`: `goal_plan`, `goal_decide`, …",
        "actions finish usage cost_usd model turn prompt left_out repaired",
    ),
    "PolicyEvaluated": EventDescription(
        "The gate's verdict on each proposal; `error` if it could not decide, which counts as a denial.",
        "action_count denied_count places verdicts calls about error",
    ),
    "ToolsDispatched": EventDescription(
        "The run executes the allowed calls, `duration_s` after the reply that proposed them.",
        "tool_count tools duration_s",
    ),
    "ObservationsCollected": EventDescription(
        "The outcome of every call: `ok`, `failed`, `cancelled`, `unfinished` or `not_run`.",
        "observation_count outcomes",
    ),
    "ApprovalRequested": EventDescription(
        "The run waits for a person: to approve a call, decide on a failure, or extend the budget.",
        "kind id place tool call_id arguments reason approvers expires_at question queue",
    ),
    "ApprovalResolved": EventDescription(
        "A person has decided it, or it has expired.", "kind id place tool approved approver choice by reason answer"
    ),
    "QuestionAsked": EventDescription("The model or a goal asks people a question.", "id question place choices"),
    "QuestionAnswered": EventDescription("The question was answered.", "id question choice answer by reason place"),
    "RecoveryTriggered": EventDescription(
        "A failed call was retried, replaced, skipped, given up or decided on.",
        "tool call_id strategy error outcome attempts calls letter_id text",
    ),
    "StepLimitReached": EventDescription(
        "A repeated call that keeps failing was stopped: a tool with its arguments.", "step_id tool attempts reason"
    ),
    "CircuitOpened": EventDescription(
        "A tool kept failing and is not called for a while.", "tool scope failures recovery_s cause"
    ),
    "CircuitClosed": EventDescription("The tool works again.", "tool scope"),
    "SagaEnded": EventDescription("A saga was completed, or compensated.", "place call_id outcome error calls"),
    "DecisionGrounded": EventDescription(
        "A declared rule has decided by recorded facts.",
        "place decision outcome rule fields facts declaration rationale",
    ),
    "CritiqueEvaluated": EventDescription(
        "A critic has reviewed an answer or a call, with the consequence.",
        "kind critic place target call_id score approved says_approved dimensions reviewer round then usage feedback",
    ),
    "DelegationStarted": EventDescription(
        "Another agent works on a part. Its journal follows, up to `DelegationEnded`.",
        "tool call_id agent task workflow_id",
    ),
    "DelegationEnded": EventDescription("The delegation has ended.", "tool call_id workflow_id reason detail usage"),
    "InterventionReceived": EventDescription(
        "Somebody has steered, paused, resumed, aborted or rewound the run, or raised its budget.",
        "kind text known refused to_iteration steer left of bytes kept",
    ),
    "InterventionRefused": EventDescription("The run could not use an intervention.", "kind reason"),
    "NotificationFailed": EventDescription("A notification could not be sent to people.", "about error"),
    "PlanMade": EventDescription("A goal has a plan.", "steps pipeline kind"),
    "PlanAdjusted": EventDescription("The plan was changed.", "by steps"),
    "StepExecuted": EventDescription("A step of the plan was executed.", "step skill place status error"),
    "StepEvaluated": EventDescription("The outcome of a step was scored.", "step score quality label by"),
    "StepOverridden": EventDescription("A person has replaced the tool of a step.", "step skill"),
    "MemoryCompressed": EventDescription("The memory of a goal was compressed.", "before after taken"),
    "DecisionMade": EventDescription("A goal has decided what it does next.", "action by confidence reason"),
    "Delivered": EventDescription("The answer of a goal was delivered to a channel.", "name kind attempts"),
    "DeliveryFailed": EventDescription(
        "The answer of a goal could not be delivered; `orga requeue` sends it again.", "name kind error attempts"
    ),
    "TurnStarted": EventDescription(
        "A turn of a session begins, with its own budgets. `turn` is its number.", "turn message"
    ),
    "TurnEnded": EventDescription(
        "A turn has ended, and the session continues.", "turn reason detail iterations usage"
    ),
    "BuildChanged": EventDescription("Workflow code of another build decides from now on.", "before build"),
    "PastMissing": EventDescription("The server no longer has the earlier entries.", "detail"),
    "Terminated": EventDescription(
        "The run has ended.", "reason detail iterations usage tool_calls duration_s conversation_digest"
    ),
}
"""By name, in the order of a run."""
