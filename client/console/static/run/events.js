// @ts-check
/**
 * What the events of a record say, in one line each, and the interventions of people with their course.
 *
 *     eventLine(event)    {state, text}: the state gives shape and colour
 *     eventGroup(event)   the group by which the timeline is filtered
 *     takeActs(record, found)   what people did to the run, as the journal has it;   actCourse(act)   what became of it
 */
import { count, duration, words } from "../format.js";

/** @typedef {import("./state.js").Event_} Event_ */
/** @typedef {{id: string, number: number, kind: string, by: string, text: string, at: string|null, state: "received"|"applied"|"refused", phase: string, iteration: number|null, appliedAt: string|null, why: string}} Act */

/** @param {number} n @param {string} one */
const many = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
/** @param {...any} parts */
const joined = (...parts) => parts.filter(Boolean).join(" ");
/** @param {any} why */
const because = (why) => (why ? `: ${why}` : "");

/** By event: a group of the filter, the state of its mark, and its text. @type {Record<string, [string, string | ((data: any) => string), (data: any) => string]>} */
const LINES = {
  Started: ["run", "done", (data) => (data.forked_from?.workflow_id ? `forked from ${data.forked_from.workflow_id}` : "the run began")],
  Prepared: ["run", "done", (data) => joined("prepared:", data.model, data.policy && `policy ${data.policy}`)],
  PreHydrationComplete: ["context", "done", (data) => `looked up ${many(data.references_found ?? 0, "reference")} of the task, ${data.references_resolved ?? 0} found`],
  KnowledgeRecalled: ["context", (data) => (data.error ? "failed" : "done"), (data) => data.error || `recalled ${many(data.items?.length ?? 0, "item")}${data.terms?.length ? ` on ${data.terms.join(", ")}` : ""}`],
  KnowledgeStored: ["context", (data) => (data.error ? "failed" : "done"), (data) => data.error || joined("stored", data.kind, data.id)],
  ContextCompacted: ["context", "stuck", (data) => `context compacted${because(joined(data.messages_dropped ? `${data.messages_dropped} dropped` : "", data.messages_masked ? `${data.messages_masked} masked` : "", data.messages_replaced ? `${data.messages_replaced} summed up` : ""))}`],
  ModelFailedOver: ["recovery", "stuck", (data) => `model ${data.from} failed, ${data.to} took over${because(data.why)}`],
  RecoveryTriggered: ["recovery", "stuck", (data) => joined("recovery:", words(data.strategy), data.tool && `of ${data.tool}`, data.attempts && `after ${many(data.attempts, "attempt")}`) + because(data.error)],
  StepLimitReached: ["recovery", "stuck", (data) => `${data.tool} was stopped after ${many(data.attempts ?? 0, "failed repetition")}`],
  CircuitOpened: ["recovery", "failed", (data) => `circuit of ${data.tool} opened${data.failures ? ` after ${many(data.failures, "failure")}` : ""}`],
  CircuitClosed: ["recovery", "done", (data) => `circuit of ${data.tool} closed`],
  SagaEnded: ["recovery", (data) => (data.error ? "failed" : "done"), (data) => `saga ${words(data.outcome)}${because(data.error)}`],
  DecisionGrounded: ["critics", "done", (data) => joined("decided by rule", data.rule, because(data.rationale))],
  CritiqueEvaluated: ["critics", (data) => (data.approved ? "done" : "stuck"), (data) => joined(`critic ${data.critic || data.reviewer}:`, data.error || joined(data.score ?? "", data.approved ? "approved" : words(data.then || "rejected")))],
  PolicyEvaluated: ["policy", (data) => (data.denied_count ? "denied" : "done"), (data) => `policy judged ${data.about || many(data.action_count ?? 0, "proposal")}${data.denied_count ? `, denied ${data.denied_count}` : ""}${because(data.error)}`],
  ApprovalRequested: ["people", "waiting", (data) => `waits for a decision${because(data.question || joined(data.tool, data.reason))}`],
  ApprovalResolved: ["people", (data) => (data.approved || data.choice ? "done" : "denied"), (data) => joined(data.by || data.approver || "nobody in time", words(data.choice || (data.approved ? "approved" : "denied")), data.tool) + because(data.reason)],
  QuestionAsked: ["people", "waiting", (data) => `asked: ${data.question}`],
  QuestionAnswered: ["people", "done", (data) => `${data.by || "somebody"} answered: ${data.answer || data.choice || data.reason}`],
  PlanMade: ["plan", "done", (data) => `plan of ${many(data.steps?.length ?? 0, "step")}`],
  PlanAdjusted: ["plan", "stuck", (data) => `plan adjusted${data.by ? ` by ${data.by}` : ""}: ${many(data.steps?.length ?? 0, "open step")}`],
  StepExecuted: ["plan", (data) => (data.status === "ok" ? "done" : "failed"), (data) => `step ${data.step} ${data.status}${because(data.error)}`],
  StepEvaluated: ["plan", "done", (data) => joined(`step ${data.step}:`, data.score === null || data.score === undefined ? "no score" : `score ${count(data.score)}`, data.label || data.quality)],
  StepOverridden: ["people", "done", (data) => `step ${data.step} now uses ${data.skill}`],
  DecisionMade: ["plan", "done", (data) => joined("decided:", words(data.action)) + because(data.reason)],
  MemoryCompressed: ["context", (data) => (data.lost?.length ? "stuck" : "done"), (data) => `memory compressed from ${count(data.before)} to ${count(data.after)}${data.lost?.length ? `, lost ${data.lost.join(", ")}` : ""}`],
  NotificationFailed: ["recovery", "failed", (data) => `a notification failed${because(data.error)}`],
  Delivered: ["run", "done", (data) => `answer delivered to ${data.name}`],
  DeliveryFailed: ["run", "failed", (data) => `answer not delivered to ${data.name}${because(data.error)}`],
  TurnStarted: ["run", "acting", (data) => `turn ${data.turn}${because(data.message)}`],
  TurnEnded: ["run", (data) => data.reason, (data) => `turn ${data.turn} ended: ${words(data.reason)}${because(data.detail)}`],
  DelegationEnded: ["run", (data) => data.reason, (data) => `delegate ${data.workflow_id} ended: ${words(data.reason)}`],
  BuildChanged: ["run", "stuck", (data) => `build ${data.build} decides from now on`],
  PastMissing: ["run", "stuck", () => "the server no longer has the earlier entries"],
  Terminated: ["run", (data) => data.reason, (data) => `ended: ${words(data.reason)}${because(data.detail)}`],
  InterventionReceived: ["people", "waiting", (data) => `${data.by || "somebody"}: ${words(data.kind)}${because(data.text)}`],
  InterventionRefused: ["people", "denied", (data) => `${words(data.kind)} ${data.by ? `of ${data.by} ` : ""}refused${because(data.reason)}`],
  InterventionApplied: ["people", "done", (data) => `${words(data.kind)} ${data.by ? `of ${data.by} ` : ""}took effect in ${words(data.phase)}`],
};

/** @param {Event_} event @returns {{state: string, text: string}} */
export function eventLine({ event, data }) {
  const line = LINES[event];
  if (!line) return { state: "done", text: words(event.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()) };
  const [, state, text] = line;
  return { state: typeof state === "string" ? state : state(data), text: text(data) };
}

/** @param {Event_} event */
export const eventGroup = (event) => LINES[event.event]?.[0] ?? "run";

/** Updates that decide something: the decision has an event of its own, with its name. */
const DECISIONS = /^(approve|deny|answer|resolve|extend)/;

/** Take what a record says of interventions. @param {import("./state.js").Record_} record @param {Map<string, Act>} found By id. @returns {Act[]} Those that stand in this record: where they took effect, or were received if they have not. */
export function takeActs(record, found) {
  /** @type {Set<Act>} */ const own = new Set();
  for (const { event, data, at, sequence } of record.events) {
    const decider = data.approver || data.by;
    if (/^(ApprovalResolved|QuestionAnswered)$/.test(event) && decider) {
      const kind = data.choice && event === "ApprovalResolved" ? words(data.choice) : event === "QuestionAnswered" ? "answered" : data.approved ? "approved" : "denied";
      found.set(`${record.number}:${sequence}`, { id: "", number: record.number, kind, by: decider, text: data.answer || data.tool || data.reason || "", at, state: "applied", phase: "", iteration: record.number, appliedAt: at, why: "" });
    }
    if (!event.startsWith("Intervention") || (DECISIONS.test(data.kind) && !data.refused && !data.id)) continue;
    const id = data.id || `${record.number}:${sequence}`;
    const act = found.get(id) ?? { id, number: record.number, kind: data.kind, by: data.by || "", text: "", at: null, state: "received", phase: "", iteration: null, appliedAt: null, why: "" };
    if (event === "InterventionReceived") {
      Object.assign(act, { at, number: act.state === "applied" ? act.number : record.number, text: typeof data.text === "string" ? data.text : "", by: data.by || act.by, ...(data.refused ? { state: "refused", why: data.refused } : {}) });
    } else if (event === "InterventionApplied") Object.assign(act, { state: "applied", number: record.number, phase: data.phase, iteration: data.iteration, appliedAt: at });
    else Object.assign(act, { state: "refused", why: data.reason, at: act.at ?? at });
    found.set(id, act);
    own.add(act);
  }
  return [...own].filter((act) => act.state !== "applied" || act.number === record.number);
}

/** @param {Act} act */
export function actCourse(act) {
  if (act.state === "refused") return `refused: ${act.why}`;
  if (act.state === "received") return act.id.includes(":") ? `received in iteration ${act.number}` : "received: it takes effect at the run's next phase";
  if (!act.phase) return `in iteration ${act.iteration}`;
  const waited = act.at && act.appliedAt ? ` after ${duration((Date.parse(act.appliedAt) - Date.parse(act.at)) / 1000)}` : "";
  return `applied in ${words(act.phase)} of iteration ${act.iteration}${waited}`;
}
