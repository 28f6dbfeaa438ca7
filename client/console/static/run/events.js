// @ts-check
/**
 * The events of a record, in one line each, and the interventions of people, with what became of them.
 *
 *     eventLine(event)    {state, text}: the state decides shape and colour
 *     eventsOf(group)     the names of the events by which the timeline is filtered
 *     takeActs(record, found)   what people did to the run, as the journal has it;   actLine(act)   one line of it
 */
import { count, took, words } from "../format.js";
import { glyph } from "../marks.js";
import { h } from "../ui.js";

/** @typedef {import("orga-api").IterationRecord} IterationRecord */
/** @typedef {import("orga-api").TimelineEvent} TimelineEvent */
/**
 * @typedef {object} Act
 * @property {string} id
 * @property {number} number The iteration that shows it.
 * @property {string} kind
 * @property {string} by
 * @property {string} text
 * @property {string|null} at
 * @property {"received"|"applied"|"refused"} state
 * @property {string} phase
 * @property {number|null} iteration
 * @property {string|null} appliedAt
 * @property {string} why
 * @property {boolean} [closes] True if it closed an open question.
 */

/** @param {number|undefined} n @param {string} one */
const many = (n = 0, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
/** @param {...any} parts */
const joined = (...parts) => parts.filter(Boolean).join(" ");
/** @param {any} why @param {string} [what] */
const because = (why, what = "") => `${what}${why ? `: ${why}` : ""}`;
/** @param {any} name */
const by = (name) => (name ? ` by ${name}` : "");
/** @param {string} state */
const unlessError = (state) => (/** @type {any} */ data) => (data.error ? "failed" : state);
const ending = (/** @type {any} */ data) => data.reason;
/** True for a question that nobody answered because something else closed it. @param {TimelineEvent} event */
const isClosed = ({ event, data }) => event === "QuestionAnswered" && data.choice === "none";
/** The text of an intervention, or the values of its update. @param {any} data @returns {string} */
function sentText({ kind, text }) {
  if (typeof text !== "object" || text === null) return String(text ?? "");
  return text.text ?? text.reason ?? (kind.startsWith("extend") ? Object.entries(text).flat().join(" ") : "");
}

/** The text of a decided approval. @param {any} data */
function approvalText({ choice, approved, by, approver, tool, reason }) {
  if (choice === "none") return "closed without a decision";
  const decision = words(choice || (approved ? "approved" : "denied"));
  return because(reason, joined(by || approver || "nobody in time", decision, tool));
}

/** The text of an answered question. @param {any} data */
function answerText({ by, choice, answer, reason }) {
  if (choice === "none") return "the question was closed without an answer";
  if (choice === "skip") return `${by || "nobody"} answered${because(reason)}; the run goes on without an answer`;
  if (choice === "abort") return joined("ended instead of being answered", by && `by ${by}`) + because(reason);
  return by ? `${by} answered: ${answer || reason}` : `nobody answered in time, so the answer is: ${answer || reason}`;
}

/** By event: a group of the filter, the state of its mark, and its text. */
/** @type {Record<string, [string, string | ((data: any) => string), (data: any) => string]>} */
const LINES = {
  Started: ["run", "done", ({ forked_from: origin, guidance }) => origin?.workflow_id
    ? `forked from ${origin.workflow_id} at iteration ${origin.iteration}${because(guidance)}` : "the run began"],
  Prepared: ["run", "done", ({ model, policy }) => joined("prepared:", model, policy && `policy ${policy}`)],
  PreHydrationComplete: ["context", "done", ({ references_found, references_resolved = 0 }) =>
    `looked up ${many(references_found, "reference")} of the task, ${references_resolved} found`],
  KnowledgeRecalled: ["context", unlessError("done"), ({ error, items = [], terms = [] }) =>
    error || `recalled ${many(items.length, "item")}${terms.length ? ` on ${terms.join(", ")}` : ""}`],
  KnowledgeStored: ["context", unlessError("done"), ({ error, kind, id }) => error || joined("stored", kind, id)],
  ContextCompacted: ["context", "stuck", ({ messages_dropped, messages_masked, messages_replaced }) =>
    `context compacted${because(joined(messages_dropped && `${messages_dropped} dropped`,
      messages_masked && `${messages_masked} masked`, messages_replaced && `${messages_replaced} summed up`))}`],
  ModelFailedOver: ["recovery", "stuck", ({ from, to, why }) => `model ${from} failed, ${to} took over${because(why)}`],
  RecoveryTriggered: ["recovery", "stuck", ({ strategy, tool, attempts, error }) => because(error, joined("recovery:",
    words(strategy), tool && `of ${tool}`, attempts && `after ${many(attempts, "attempt")}`))],
  StepLimitReached: ["recovery", "stuck", ({ tool, attempts }) =>
    `${tool} was stopped after ${many(attempts, "failed repetition")}`],
  CircuitOpened: ["recovery", "failed", ({ tool, failures }) =>
    `circuit of ${tool} opened${failures ? ` after ${many(failures, "failure")}` : ""}`],
  CircuitClosed: ["recovery", "done", ({ tool }) => `circuit of ${tool} closed`],
  SagaEnded: ["recovery", unlessError("done"), ({ outcome, error }) => `saga ${words(outcome)}${because(error)}`],
  DecisionGrounded: ["critics", "done", ({ rule, rationale }) => because(rationale, joined("decided by rule", rule))],
  CritiqueEvaluated: ["critics", ({ approved }) => (approved ? "done" : "stuck"),
    ({ critic, reviewer, error, score, approved, then }) =>
      `critic ${critic || reviewer}: ${error || joined(score, approved ? "approved" : words(then || "rejected"))}`],
  PolicyEvaluated: ["policy", ({ denied_count: denied }) => (denied ? "denied" : "done"),
    ({ about, action_count, denied_count: denied, error }) =>
      `policy judged ${about || many(action_count, "proposal")}${denied ? `, denied ${denied}` : ""}${because(error)}`],
  ApprovalRequested: ["people", "waiting", ({ kind, question, tool, reason }) =>
    kind === "result" ? `waits for ${question}` : `waits for a decision${because(question || joined(tool, reason))}`],
  ApprovalResolved: ["people", ({ approved, choice }) => (approved || choice ? "done" : "denied"), approvalText],
  QuestionAsked: ["people", "waiting", ({ question }) => `asked: ${question}`],
  QuestionAnswered: ["people", ({ choice }) => (!choice || choice === "result" ? "done" : "skipped"), answerText],
  PlanMade: ["plan", "done", ({ steps }) => `plan of ${many(steps?.length, "step")}`],
  PlanAdjusted: ["plan", "stuck", (data) => `plan adjusted${by(data.by)}: ${many(data.steps?.length, "open step")}`],
  StepExecuted: ["plan", ({ status }) => (status === "ok" ? "done" : "failed"), ({ step, status, error }) =>
    `step ${step} ${status}${because(error)}`],
  StepEvaluated: ["plan", "done", ({ step, score, label, quality }) =>
    joined(`step ${step}:`, typeof score === "number" ? `score ${count(score)}` : "no score", label || quality)],
  StepOverridden: ["people", "done", ({ step, skill }) => `step ${step} now uses ${skill}`],
  DecisionMade: ["plan", "done", ({ action, reason }) => `decided: ${words(action)}${because(reason)}`],
  MemoryCompressed: ["context", ({ lost }) => (lost?.length ? "stuck" : "done"), ({ before, after, lost }) =>
    `memory compressed from ${count(before)} to ${count(after)}${lost?.length ? `, lost ${lost.join(", ")}` : ""}`],
  NotificationFailed: ["recovery", "failed", ({ error }) => `a notification failed${because(error)}`],
  Delivered: ["run", "done", ({ name }) => `answer delivered to ${name}`],
  DeliveryFailed: ["run", "failed", ({ name, error }) => `answer not delivered to ${name}${because(error)}`],
  TurnStarted: ["run", "acting", ({ turn, message }) => `turn ${turn}${because(message)}`],
  TurnEnded: ["run", ending, ({ turn, reason, detail }) => `turn ${turn} ended: ${words(reason)}${because(detail)}`],
  DelegationEnded: ["run", ending, ({ workflow_id: id, reason }) => `delegate ${id} ended: ${words(reason)}`],
  BuildChanged: ["run", "stuck", ({ build }) => `build ${build} decides from now on`],
  PastMissing: ["run", "stuck", () => "the server no longer has the earlier entries"],
  Terminated: ["run", ending, ({ reason, detail }) => `ended: ${words(reason)}${because(detail)}`],
  InterventionReceived: ["people", "waiting", (data) =>
    `${data.by || "somebody"} ${verb(data.kind)}${because(sentText(data))}`],
  InterventionRefused: ["people", "denied", (data) =>
    `${words(data.kind)}${by(data.by)} refused${because(data.reason)}`],
  InterventionApplied: ["people", "done", (data) =>
    `${words(data.kind)}${by(data.by)} took effect in ${words(data.phase)}`],
};

/**
 * @param {TimelineEvent} given @param {TimelineEvent[]} [all] All events of its record.
 * @returns {{state: string, text: string}}
 */
export function eventLine(given, all = []) {
  const { event, data } = given;
  const line = LINES[event];
  if (!line) return { state: "done", text: words(event.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()) };
  if (isClosed(given)) {
    const before = all.slice(0, all.indexOf(given)).findLast((one) => CLOSING.test(one.data.kind ?? ""))?.data;
    const text = before && `${before.by || "somebody"} ${verb(before.kind)}, which closed the question`;
    if (text) return { state: "skipped", text };
  }
  const [, state, text] = line;
  return { state: typeof state === "string" ? state : state(data), text: text(data) };
}

/** @param {string} group */
export const eventsOf = (group) => Object.keys(LINES).filter((name) => LINES[name]?.[0] === group).join(",");

/** Updates that decide something. The decision has its own event, which names the person. */
const DECISIONS = /^(approve|deny|answer|resolve|complete)/;
/** Acts that take effect as soon as the run receives them. */
const AT_ONCE = /^(extend|send|interrupt|requeue|close|rewind)/;
/** Guidance, which closes a question of a goal. */
const CLOSING = /^(steer|add_context|override_step)$/;

/** The verb of each kind of act. @type {Record<string, string>} */
const VERBS = {
  steer: "steered", add_context: "added context", pause: "paused", resume: "resumed", abort: "aborted", send: "sent",
  interrupt: "interrupted the turn", close: "ended the chat", extend_budget: "extended", extend: "extended",
  override_step: "overrode the next step", requeue: "requeued", fork: "forked",
  rewind: "rewound",
};
/** @param {string} kind */
const verb = (kind) => VERBS[kind] ?? words(kind);

/** @param {Partial<Act> & {id: string, number: number}} known @returns {Act} */
const asAct = (known) => ({
  kind: "", by: "", text: "", why: "", state: "received", at: null, phase: "", iteration: null, appliedAt: null,
  ...known,
});

/**
 * Take the interventions of a record.
 * @param {IterationRecord} record @param {Map<string, Act>} found By id.
 * @returns {Act[]} The acts that this record shows: those that took effect in it, or have only been received in it.
 */
export function takeActs({ number, events }, found) {
  /** @type {Set<Act>} */ const own = new Set();
  for (const { event, data, at, sequence } of events) {
    const place = `${number}:${sequence}`;
    if (event === "QuestionAnswered" && data.choice === "none") {
      const closer = [...own].findLast((act) => CLOSING.test(act.kind));
      if (closer) closer.closes = true;
    }
    const decider = data.approver || data.by;
    if ((event === "ApprovalResolved" || event === "QuestionAnswered") && decider) {
      const decision = data.choice ? words(data.choice) : data.approved ? "approved" : "denied";
      const kind = event === "QuestionAnswered" ? "answered" : decision;
      const text = data.answer || data.tool || data.reason || "";
      const applied = /** @type {const} */ ({ state: "applied", iteration: number, at, appliedAt: at });
      found.set(place, asAct({ id: "", number, kind, by: decider, text, ...applied }));
    }
    if (!event.startsWith("Intervention") || (DECISIONS.test(data.kind) && !data.refused && !data.id)) continue;
    const id = data.id || place;
    const act = found.get(id) ?? asAct({ id, number, kind: data.kind, by: data.by || "" });
    if (event === "InterventionReceived") {
      const isDone = AT_ONCE.test(data.kind);
      if (act.state !== "applied") act.number = number;
      Object.assign(act, { at, text: sentText(data), by: data.by || data.text?.by || act.by });
      if (isDone) Object.assign(act, { state: "applied", iteration: number });
      if (data.refused) Object.assign(act, { state: "refused", why: data.refused });
    } else if (event === "InterventionApplied")
      Object.assign(act, { state: "applied", number, phase: data.phase, iteration: data.iteration, appliedAt: at });
    else Object.assign(act, { state: "refused", why: data.reason, at: act.at ?? at });
    found.set(id, act);
    own.add(act);
  }
  return [...own].filter((act) => act.state !== "applied" || act.number === number);
}

/** @param {Act} act */
export function actCourse(act) {
  return `${actState(act)}${act.closes ? "; it closed the open question" : ""}`;
}

/** @param {Act} act */
function actState({ id, state, why, number, phase, iteration, at, appliedAt }) {
  if (state === "refused") return `refused: ${why}`;
  if (state === "received")
    return id.includes(":") ? `received in iteration ${number}` : "received: it takes effect at the run's next phase";
  if (!phase) return iteration ? `in iteration ${iteration}` : "before iteration 1";
  const waited = took(at, appliedAt);
  return `applied in ${words(phase)} of iteration ${iteration}${waited && ` after ${waited}`}`;
}

const MARKS = { received: "waiting", sending: "pending", applied: "done", refused: "denied", failed: "failed" };

/**
 * A line about an act of a person, and its course.
 * @param {{state: keyof typeof MARKS, by: string, kind: string, text: string}} act
 * @param {...import("../ui.js").Child} course
 */
export const actLine = ({ state, by: who, kind, text }, ...course) => [
  glyph(MARKS[state]),
  h("p", h("b", who || "somebody"), ` ${verb(kind)} `, text ? h("q", text) : null, " ", h("small", course)),
];
