// @ts-check
/**
 * The card of what waits for a person: an approval, a question, an escalation, a used up budget, the result of a call,
 * an undelivered answer.
 *
 *     waitList(() => waits, { showRun: true })   the cards of a list; a card stays a while after its wait is over
 *     waitKeys()                                 adds the keys j, k, a and d for the cards of the page
 * `sendAction` sends decisions. A call can be approved only after its arguments were shown.
 */
import { runPath } from "./address.js";
import { get, may, me, sendAction } from "./api.js";
import { bytes, capital, now, parse, time, words } from "./format.js";
import { glyph, kindLabel } from "./marks.js";
import { eventLine } from "./run/events.js";
import { ask, keys, moveFocus } from "./shell.js";
import { computed, each, h, signal, stable, untracked } from "./ui.js";
import { button, plain } from "./widgets.js";

/** @typedef {import("orga-api").Wait} Wait */
/** @typedef {Wait & {over?: Signal<string>}} Card A wait, or one that is over and how it ended. */
/** @template T @typedef {import("./ui.js").Signal<T>} Signal */
/** @typedef {ReturnType<typeof sendAction>} Progress */
/** @typedef {(kind: string, values: Record<string, unknown>) => void} Send */

/** Length of arguments that are shown at once. Longer ones have to be unfolded before a decision. */
const FOLDED = 2000;
/** Milliseconds that a decided card stays. */
const STAYS = 15_000;
/** Milliseconds that a card stays if its run has ended. */
const LEAVES = 4_000;

/** A key with the question, because a step that fails again has an escalation of the same id. @param {Wait} wait */
const keyOf = ({ run, kind, id, question }) => `${run} ${kind} ${id} ${kind === "approval" ? "" : question}`;

/** @param {() => Wait[]} waits @param {{showRun?: boolean}} [options] */
export function waitList(waits, { showRun = false } = {}) {
  /** The cards whose wait is over. @type {Map<string, {wait: Card, until: number}>} */
  const gone = new Map();
  /** @type {Wait[]} */ let before = [];
  const leave = (/** @type {string} */ id) => {
    const one = gone.get(id);
    if (one) one.until = Math.min(one.until, Date.now() + LEAVES);
  };
  const shown = computed(() => {
    const open = waits();
    const ids = new Set(open.map(keyOf));
    for (const wait of before) {
      const id = keyOf(wait);
      if (!ids.has(id) && !gone.has(id))
        gone.set(id, { wait: { ...wait, over: ending(wait, () => leave(id)) }, until: Date.now() + STAYS });
    }
    for (const [id, { until }] of gone) if (ids.has(id) || until < Date.now()) gone.delete(id);
    if (gone.size) void now.value; // compute this again each second until all are gone
    before = open;
    const all = /** @type {Card[]} */ ([...open, ...[...gone.values()].map(({ wait }) => wait)]);
    return all.sort((one, other) => (one.asked ?? "").localeCompare(other.asked ?? ""));
  });
  return h("div.waits", each(() => shown.value, keyOf, (wait) => card(wait, showRun)));
}

/** The text of how a wait ended. @param {Wait} wait @param {() => void} leave Called if the run ended. */
function ending(wait, leave) {
  const note = signal("no longer waits: it was decided, or it has expired");
  const look = async (left = 3) => {
    const { items } = await get(`${runPath(wait.run)}/timeline?limit=5`);
    const calls = items.flatMap((record) => record.calls);
    const call = calls.findLast((one) => one.id === wait.place && one.tool === wait.tool);
    const events = items.flatMap((record) => record.events);
    const closing = events.findLast(({ event, data }) =>
      ["ApprovalResolved", "QuestionAnswered"].includes(event) && data.id === wait.id);
    const closed = closing?.data;
    const ended = events.findLast(({ event }) => event === "Terminated")?.data;
    let decided = "";
    if (call?.approver && wait.kind !== "result")
      decided = decision(call.state === "denied" ? "deny" : "approve", call.approver);
    else if (closing?.data.choice === "none") decided = eventLine(closing, events).text;
    else if (closed) {
      const choice = closed.choice ?? (closed.approved ? "approve" : "deny");
      decided = decision(choice, closed.by || closed.approver, closed.answer);
    }
    if (decided) note.value = decided;
    if (ended) {
      note.value = [decided, `the run has ended: ${words(ended.reason)}`].filter(Boolean).join("; ");
      leave();
    } else if (!decided && left) setTimeout(() => look(left - 1).catch(() => {}), 700);
  };
  look().catch(() => {});
  return note;
}

/** @type {Record<string, string>} */
const DECIDED = {
  approve: "approved", deny: "denied", answer: "answered", result: "answered", extend: "extended",
  requeue: "sent again", complete: "completed", skip: "skipped", abort: "aborted", retry: "retried",
};

/** A decision as a sentence. @param {string} choice @param {string} [by] @param {string} [text] */
const decision = (choice, by, text) =>
  `${DECIDED[choice] ?? words(choice)}${by ? ` by ${by}` : ": nobody decided in time"}${
    text ? `: ${text}` : ""}`;

let cardsMade = 0;

/** @param {Signal<Card>} wait @param {boolean} showRun */
function card(wait, showRun) {
  const one = wait.peek();
  const progress = signal(/** @type {Progress|null} */ (null));
  const state = () => progress.value?.value.state ?? "";
  const over = computed(() => wait.value.over?.value ?? null);
  const unfolded = signal(false);
  const busy = computed(() => Boolean(over.value) || ["sending", "received", "applied"].includes(state()));
  const content = stable(() => ({ ...wait.value, over: null }));
  /** @type {Send} */
  const send = (kind, values) => {
    if (busy.peek()) return;
    const choice = String(kind === "resolve" ? values.choice : kind);
    own = decision(choice, me.name, kind === "complete" ? "" : String(values.text ?? values.result ?? ""));
    progress.value = sendAction(one.run, kind, values);
  };
  let own = "";
  const detail = () => (state() === "applied" ? own : progress.value?.value.detail);
  const report = () =>
    h("span", { class: () => (["refused", "failed"].includes(state()) ? "error" : "soft small"), role: "status" },
      () => detail() ?? over.value ?? "");
  const name = `wait-${++cardsMade}`;
  return h("article.wait", { class: () => (over.value ? "gone" : ""), tabindex: -1, "aria-labelledby": name },
    h("header", h("strong.mark.tone-wait", { id: name }, glyph(one.kind), kindLabel(one.kind)),
      showRun ? h("a", { href: runPath(one.run) }, one.run_task || one.run) : null,
      one.agent ? h("span.tag", one.agent) : null,
      one.queue && one.queue !== "default" ? h("span.tag", `queue ${one.queue}`) : null,
      h("span.end", one.asked ? ["asked ", time(one.asked)] : null,
        () => (one.expires && !over.value && state() !== "applied" ? [" · expires ", time(one.expires)] : null))),
    h("div.body", () => body(content.value, unfolded)),
    () => (
      over.value || one.id ? h("footer", over.value ? null : controls(one, send, unfolded, busy), report()) : null));
}

/** @param {Wait} wait @param {Signal<boolean>} unfolded */
function body({ id, kind, question, tool, arguments: values, policies, reason, approvers, before }, unfolded) {
  if (!id) return [h("p.question", question), reason ? h("p", reason) : null];
  const by = policies.length ? policies.map((policy, at) => [at ? ", " : "", h("code", policy)]) : "the policy";
  const isHeld = kind === "approval";
  return [
    question && !isHeld ? h("p.question", question) : null,
    tool ? h("p.call", tool) : null,
    isHeld || (values && kind !== "budget") ? callArguments(values, unfolded) : null,
    reason || policies.length
      ? h("p", isHeld ? [h("span.faint", "held by "), h("span.tone-wait", by), reason ? ": " : ""] : null, reason) : null,
    approvers.length ? h("p.small.soft", `may be decided by ${approvers.join(", ")}`) : null,
    before ? h("details", h("summary.small.soft", "What the run did just before"), h("p.plain.small", before)) : null,
  ];
}

/** @param {any} values @param {Signal<boolean>} unfolded */
function callArguments(values, unfolded) {
  if (values === null) {
    unfolded.value = false;
    return h("p.error", "The run does not hold the arguments at the moment, so the call can only be denied");
  }
  const entries = typeof values === "object" ? Object.entries(values) : [["", values]];
  const size = JSON.stringify(values).length;
  if (size <= FOLDED) untracked(() => (unfolded.value = true));
  if (!entries.length) return h("p.faint", "no arguments");
  const list = h("dl.arguments", entries.map(([name, value]) =>
    [h("dt", name), h("dd", h("pre", typeof value === "string" ? value : JSON.stringify(value, null, 2)))]));
  if (size <= FOLDED) return list;
  const ontoggle = (/** @type {any} */ event) => event.target.open && (unfolded.value = true);
  return h("details.fold", { open: unfolded.peek(), ontoggle },
    h("summary", `All arguments (${bytes(size)}): unfold them before you decide`), list);
}

/** @param {Wait} wait @param {Send} send @param {Signal<boolean>} unfolded @param {Signal<boolean>} busy */
function controls(wait, send, unfolded, busy) {
  const role = ["approval", "budget", "delivery"].includes(wait.kind) ? "approver" : "operator";
  if (!may(role)) return h("span.soft.small", `You need the role ${role} to decide this.`);
  const { id, options } = wait;
  const danger = { class: "danger" };
  const control = (/** @type {string} */ label, /** @type {() => void} */ act, more = {}) =>
    button(label, act, { disabled: busy, ...more });
  const text = h("input", { disabled: busy });
  const entry = (/** @type {string} */ label, enter = () => {}) => {
    text.placeholder = text.ariaLabel = label;
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      enter();
    });
    return text;
  };
  const resolve = async (/** @type {string} */ choice) => {
    const more = choice === "result" ? { result: text.value } : text.value ? { reason: text.value } : {};
    if (choice === "result" && !text.value) return text.focus();
    if (choice === "abort" && !(await ask(ABORT))) return;
    send("resolve", { escalation_id: id, choice, ...more });
  };
  if (wait.kind === "approval") {
    const decide = (/** @type {string} */ kind, more = {}) =>
      send(kind, { approval_id: id, ...(text.value ? { reason: text.value } : {}), ...more });
    const deny = () => decide("deny");
    const changed = argumentsField(wait.arguments, busy);
    const approve = () => {
      const values = changed.hidden ? null : jsonObject(changed);
      if (changed.hidden || values) decide("approve", values ? { arguments: values } : {});
    };
    const canChange = wait.arguments && wait.tool !== ANSWER;
    return [
      control("Approve", approve, {
        class: "primary", "data-key": "a", disabled: () => busy.value || !unfolded.value,
        title: () => (unfolded.value ? null : "Unfold the arguments first"),
      }),
      control("Deny", deny, danger),
      entry("Reason, which the agent reads", deny),
      canChange
        ? control("Change the arguments", () => {
            changed.hidden = !changed.hidden;
            if (!changed.hidden) changed.focus();
          })
        : null,
      changed,
    ];
  }
  if (wait.kind === "answer") {
    const answer = (/** @type {string} */ value) => value && send("answer", { question_id: id, text: value });
    if (options.length) return options.map((option) => control(option, () => answer(option)));
    const enter = () => answer(text.value);
    return [entry("Answer", enter), control("Answer", enter, { class: "primary" })];
  }
  if (wait.kind === "result") {
    const complete = (/** @type {Record<string, unknown>} */ end) =>
      text.value ? send("complete", { idempotency_key: id, ...end }) : text.focus();
    const enter = () => {
      const { value, problem } = parse(text.value);
      complete({ result: problem ? text.value : value });
    };
    return [
      entry("The result, as JSON or text", enter),
      control("Complete", enter, { class: "primary" }),
      control("It failed", () => complete({ error: text.value }), danger),
    ];
  }
  if (wait.kind === "delivery") return control("Send it again", () => send("requeue", { letter: id }));
  if (wait.kind === "budget") {
    const limit = String(wait.arguments?.limit ?? wait.question.split(":")[0]);
    const value = Number(wait.arguments?.value ?? 0);
    const field = h("input", {
      type: "number", min: value, step: "any", value: value ? value * 2 : "", "aria-label": `New ${words(limit)}`,
    });
    return [
      h("span", `${words(limit)} to`), field,
      control("Extend", () => field.value && send("extend", { [limit]: Number(field.value) }), { class: "primary" }),
      control("End at the limit", () => resolve("skip")),
      control("Abort", () => resolve("abort"), danger),
    ];
  }
  const choices = options.length ? options : ["retry", "skip", "abort"];
  return [
    choices.map((choice) => control(capital(choice), () => resolve(choice), choice === "abort" ? danger : {})),
    entry(choices.includes("result") ? "Reason, or the result to go on with" : "Reason"),
  ];
}

/** The name that a held final answer has in place of a tool. */
const ANSWER = "(answer)";

/** JSON with escapes for invisible characters, so that people see all of it. @param {unknown} value */
const escapedJson = (value) =>
  (JSON.stringify(value, null, 2) ?? "").replace(/\p{Cf}|[\u0080-\u009f\u2028\u2029]/gu, (found) =>
    [...Array(found.length).keys()].map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

/** @param {unknown} values @param {Signal<boolean>} busy */
const argumentsField = (values, busy) =>
  h("textarea.code", {
    hidden: true, disabled: busy, rows: 6, spellcheck: "false", "aria-label": "Arguments as JSON",
    value: escapedJson(values),
    oninput: (/** @type {any} */ event) => event.target.setCustomValidity(""),
  });

/** The object that is written in a field, or null. The field then shows what is wrong. @param {any} field */
function jsonObject(field) {
  const { value, problem } = parse(field.value);
  const isObject = value && typeof value === "object" && !Array.isArray(value);
  field.setCustomValidity(problem || (isObject ? "" : "give an object with all arguments"));
  return field.reportValidity() ? value : null;
}

const ABORT = {
  title: "Abort the run?", action: "Abort the run", danger: true,
  body: "It ends with what it has gathered. Effects that its tools had outside stay.",
};

export function waitKeys() {
  const cards = () => document.querySelectorAll(".wait");
  /** In the card with the focus, or the only one. @param {string} selector @returns {HTMLElement|null|undefined} */
  const chosen = (selector) => {
    const all = [...cards()];
    const card = all.find((one) => one.contains(document.activeElement)) ?? (all.length === 1 ? all[0] : undefined);
    return card?.querySelector(selector);
  };
  keys({
    j: ["next card", () => moveFocus(cards(), 1)],
    k: ["previous card", () => moveFocus(cards(), -1)],
    a: ["approve the call of this card", () => chosen("[data-key=a]")?.click()],
    d: ["deny it, with a reason (Enter)", () => chosen("footer input")?.focus()],
  });
}
