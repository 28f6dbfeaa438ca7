// @ts-check
/**
 * The card of what waits for a person: an approval, a question, an escalation, a used up budget, an undelivered answer.
 *
 *     waitList(() => waits, { showRun: true })   the cards of a list; one that is decided stays for a while and says so
 *     waitKeys()                                 j k a d on the page's cards (and the rows of the table of keys)
 * Decisions go by `sendAction`. Nothing is approved whose arguments were not on the screen.
 */
import { get, may, sendAction } from "./api.js";
import { age, bytes, capital, now, time, words } from "./format.js";
import { glyph, kindLabel } from "./marks.js";
import { ask, keys } from "./shell.js";
import { computed, each, h, signal, untracked } from "./ui.js";

/** @typedef {import("./ui.js").Signal<any>} Any */

/** Bytes of arguments that are shown at once. Longer ones are unfolded before a decision. */
const FOLDED = 2000;
/** Milliseconds that a decided card stays. */
const STAYS = 15_000;

/** A run has each of its waits once. @param {any} wait */
const keyOf = (wait) => `${wait.run} ${wait.kind} ${wait.id} ${wait.question ?? ""}`;

/** @param {() => any[]} waits @param {{showRun?: boolean}} [options] */
export function waitList(waits, { showRun = false } = {}) {
  /** The cards whose wait is over. @type {Map<string, {wait: any, until: number, note: Any}>} */
  const gone = new Map();
  /** @type {any[]} */ let before = [];
  const shown = computed(() => {
    const open = waits();
    const ids = new Set(open.map(keyOf));
    for (const wait of before) {
      if (!ids.has(keyOf(wait)) && !gone.has(keyOf(wait))) gone.set(keyOf(wait), { wait, until: Date.now() + STAYS, note: noteOf(wait) });
    }
    for (const [id, { until }] of gone) if (ids.has(id) || until < Date.now()) gone.delete(id);
    if (gone.size) void now.value; // look again, until they have gone
    before = open;
    const all = [...open, ...[...gone.values()].map(({ wait, note }) => ({ ...wait, over: note }))];
    return all.sort((one, other) => String(one.asked ?? "").localeCompare(String(other.asked ?? "")));
  });
  return h("div.waits", each(() => shown.value, keyOf, (wait) => card(wait, showRun)));
}

/** How a wait ended, as the run's last records have it. @param {any} wait */
function noteOf(wait) {
  const note = signal("no longer waits: it was decided, or it has expired");
  const look = async (/** @type {number} */ left) => {
    const { items } = await get(`/runs/${encodeURIComponent(wait.run)}/timeline?limit=5`);
    const calls = items.flatMap((/** @type {any} */ record) => record.calls);
    const call = calls.findLast((/** @type {any} */ one) => one.id === wait.place && one.tool === wait.tool);
    if (call?.approver) note.value = `${call.state === "denied" ? "denied" : "approved"} by ${call.approver} ${age(call.ended ?? call.started ?? new Date().toISOString())}`;
    else if (left) setTimeout(() => look(left - 1).catch(() => {}), 700);
  };
  if (wait.kind === "approval") look(3).catch(() => {});
  return note;
}

/** @param {Any} wait @param {boolean} showRun */
function card(wait, showRun) {
  const one = wait.peek();
  /** @type {Any} */ const progress = signal(null);
  const over = computed(() => wait.value.over?.value ?? null);
  const unfolded = signal(false);
  const busy = computed(() => over.value || ["sending", "sent", "received", "applied"].includes(progress.value?.value.state));
  const content = computed(() => JSON.stringify({ ...wait.value, over: null }));
  /** @param {string} kind @param {Record<string, unknown>} values */
  const send = (kind, values) => void (busy.peek() || (progress.value = sendAction(one.run, kind, values)));
  const name = `wait-${++cardsMade}`;
  return h("article", { class: () => (over.value ? "wait gone" : "wait"), tabindex: -1, "aria-labelledby": name },
    h("header",
      h("strong.mark.tone-wait", { id: name }, glyph(one.kind), kindLabel(one.kind)),
      showRun ? h("a", { href: `/runs/${encodeURIComponent(one.run)}` }, one.run_task || one.run) : null,
      one.agent ? h("span.tag", one.agent) : null,
      one.queue && one.queue !== "default" ? h("span.tag", `queue ${one.queue}`) : null,
      h("span.end", one.asked ? ["asked ", time(one.asked)] : null, one.expires ? [" · expires ", time(one.expires)] : null)),
    h("div.body", () => body(JSON.parse(content.value), unfolded)),
    () => over.value ? h("footer", () => (progress.value ? report(progress) : h("span", { role: "status" }, over.value))) : one.id ? h("footer", controls(one, send, unfolded, busy), report(progress)) : null);
}
let cardsMade = 0;

/** @param {any} wait @param {Any} unfolded */
function body(wait, unfolded) {
  const by = wait.policies?.length ? wait.policies.map((/** @type {string} */ policy, /** @type {number} */ at) => [at ? ", " : "", h("code", policy)]) : "the policy";
  return [
    wait.question && wait.kind !== "approval" ? h("p.question", wait.question) : null,
    wait.tool ? h("p.call", wait.tool) : null,
    wait.kind === "approval" || (wait.arguments && wait.kind !== "budget") ? callArguments(wait.arguments, unfolded) : null,
    wait.reason || wait.policies?.length ? h("p", wait.kind === "approval" ? [h("span.faint", "held by "), h("span.why", by), wait.reason ? ": " : ""] : null, wait.reason) : null,
    wait.approvers?.length ? h("p.small.soft", `may be decided by ${wait.approvers.join(", ")}`) : null,
    wait.before ? h("details", h("summary.small.soft", "What the run did just before"), h("p.plain.small", wait.before)) : null,
  ];
}

/** @param {Any} progress */
const report = (progress) =>
  h("span", { class: () => (["refused", "failed"].includes(progress.value?.value.state) ? "error" : "soft small"), role: "status" }, () => progress.value?.value.detail ?? "");

/** @param {unknown} values @param {Any} unfolded */
function callArguments(values, unfolded) {
  if (values === null || values === undefined) {
    unfolded.value = false;
    return h("p.error", "The run does not hold the arguments at the moment, so the call can only be denied");
  }
  const entries = typeof values === "object" ? Object.entries(values) : [["", values]];
  const list = h("dl.arguments", entries.map(([name, value]) => [
    h("dt", String(name)),
    h("dd", h("pre", typeof value === "string" ? value : String(JSON.stringify(value, null, 2)))),
  ]));
  const size = JSON.stringify(values).length;
  if (size <= FOLDED) untracked(() => (unfolded.value = true));
  if (!entries.length) return h("p.faint", "no arguments");
  if (size <= FOLDED) return list;
  const wasOpen = unfolded.peek();
  return h("details.fold", { open: wasOpen, ontoggle: (/** @type {any} */ event) => event.target.open && (unfolded.value = true) }, h("summary", `All arguments (${bytes(size)}): unfold them before you decide`), list);
}

/** @param {any} wait @param {(kind: string, values: Record<string, unknown>) => void} send @param {Any} unfolded @param {Any} busy */
function controls(wait, send, unfolded, busy) {
  const role = ["approval", "budget", "delivery"].includes(wait.kind) ? "approver" : "operator";
  if (!may(role)) return h("span.soft.small", `You need the role ${role} to decide this.`);
  const text = h("input", { "aria-label": "Reason or answer", disabled: () => Boolean(busy.value) });
  const entry = (/** @type {string} */ placeholder, /** @type {() => void} */ enter) => {
    text.placeholder = placeholder;
    text.setAttribute("aria-label", placeholder);
    text.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && (event.preventDefault(), enter()));
    return text;
  };
  /** @param {string} label @param {() => void} act @param {Record<string, any>} [more] */
  const button = (label, act, more = {}) => h("button", { type: "button", onclick: act, disabled: () => Boolean(busy.value), ...more }, label);
  if (wait.kind === "approval") {
    const values = () => ({ approval_id: wait.id, ...(text.value ? { reason: text.value } : {}) });
    const deny = () => send("deny", values());
    return [
      button("Approve", () => send("approve", values()), { class: "primary", "data-key": "a", disabled: () => Boolean(busy.value) || !unfolded.value, title: () => (unfolded.value ? null : "Unfold the arguments first") }),
      button("Deny", deny, { class: "danger" }),
      entry("Reason, which the agent reads", deny),
    ];
  }
  if (wait.kind === "answer") {
    const answer = (/** @type {string} */ value) => value && send("answer", { question_id: wait.id, text: value });
    return [
      (wait.options ?? []).map((/** @type {string} */ option) => button(option, () => void answer(option))),
      entry(wait.options?.length ? "Another answer" : "Answer", () => void answer(text.value)),
      button("Answer", () => void answer(text.value), { class: "primary" }),
    ];
  }
  if (wait.kind === "delivery") return button("Send it again", () => send("requeue", { letter: wait.id }));
  if (wait.kind === "budget") return extension(wait, send, button);
  const resolve = async (/** @type {string} */ choice) => {
    if (choice === "result" && !text.value) return text.focus();
    if (choice === "abort" && !(await isSure())) return;
    send("resolve", { escalation_id: wait.id, choice, ...(choice === "result" ? { result: text.value } : text.value ? { reason: text.value } : {}) });
  };
  return [
    (wait.options?.length ? wait.options : ["retry", "skip", "abort"]).map((/** @type {string} */ choice) => button(capital(choice), () => void resolve(choice), choice === "abort" ? { class: "danger" } : {})),
    entry(wait.options?.includes("result") ? "Reason, or the result to go on with" : "Reason", () => {}),
  ];
}

const isSure = () => ask({ title: "Abort the run?", body: "It ends with what it has gathered. Effects that its tools had outside stay.", action: "Abort the run", danger: true });

/** @param {any} wait @param {(kind: string, values: Record<string, unknown>) => void} send @param {(label: string, act: () => void, more?: any) => HTMLElement} button */
function extension(wait, send, button) {
  const limit = String(wait.arguments?.limit ?? wait.question?.split(":")[0] ?? "max_iterations");
  const value = Number(wait.arguments?.value ?? 0);
  const field = h("input", { type: "number", min: value, step: "any", value: value ? String(value * 2) : "", "aria-label": `New ${words(limit)}` });
  const resolve = (/** @type {string} */ choice) => send("resolve", { escalation_id: wait.id, choice });
  return [
    h("span", `${words(limit)} to`), field,
    button("Extend", () => field.value && send("extend", { [limit]: Number(field.value) }), { class: "primary" }),
    button("End at the limit", () => resolve("skip")),
    button("Abort", async () => (await isSure()) && resolve("abort"), { class: "danger" }),
  ];
}

const cards = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".wait")]);

/** @param {number} step */
function move(step) {
  const all = cards();
  const at = all.findIndex((one) => one.contains(document.activeElement));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  next?.focus();
}

/** The card with the focus, or the only one. */
function chosen() {
  const all = cards();
  return all.find((one) => one.contains(document.activeElement)) ?? (all.length === 1 ? all[0] : undefined);
}

export function waitKeys() {
  keys({
    j: ["next card", () => move(1)],
    k: ["card before", () => move(-1)],
    a: ["approve the call of this card", () => /** @type {HTMLElement|null|undefined} */ (chosen()?.querySelector("[data-key=a]"))?.click()],
    d: ["deny it, with a reason (Enter)", () => /** @type {HTMLElement|null|undefined} */ (chosen()?.querySelector("footer input"))?.focus()],
  });
}
