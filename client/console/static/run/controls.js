// @ts-check
/**
 * The acts of a visitor on a run: a table with a row for each, its form, and the same act as commands of a shell.
 *
 * A control is absent if it makes no sense for this run or visitor. It is disabled, with the reason, if it does not
 * make sense at the moment.
 */
import { runPath } from "../address.js";
import { asProblem, post } from "../api.js";
import { fields, keysOf } from "../form.js";
import { parse, words } from "../format.js";
import { announce, dialog } from "../shell.js";
import { computed, each, effect, h, signal, stable, untracked } from "../ui.js";
import { button, copy } from "../widgets.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("./state.js").Snapshot} Snapshot */
/**
 * @typedef {object} Act
 * @property {string} label
 * @property {string} title
 * @property {string} hint
 * @property {Record<string, any>} [fields] Schemas of the values. Without them it asks nothing.
 * @property {string[]} [needed]
 * @property {boolean} [isDanger]
 * @property {(values: any) => unknown[]} command Arguments of `orga`; [] if there is no such command.
 */

/** @param {string} name @param {any} value */
const option = (name, value) => (value === undefined ? [] : [`--${name.replaceAll("_", "-")}`, value]);
/** @param {string} label */
const text = (label) => ({ label, type: "string" });
/** @param {string} label */
const long = (label) => ({ label, type: "string", isLong: true });
/** @param {string} label */
const number = (label) => ({ label, type: "integer", minimum: 0 });
const LIMITS = ["max_iterations", "max_total_tokens", "max_cost_usd", "timeout_s", "max_model_calls", "max_tool_calls"];

/** @type {Record<string, Act>} */
const ACTS = {
  pause: { label: "Pause", title: "Pause the run", hint: "", command: () => ["pause"] },
  resume: { label: "Resume", title: "Resume the run", hint: "", command: () => ["resume"] },
  steer: {
    label: "Steer", title: "Steer the run", fields: { text: long("Guidance") }, needed: ["text"],
    hint: "The model reads this before its next step. Delegates that are running get it too.",
    command: (values) => ["steer", values.text],
  },
  add_context: {
    label: "Add context", title: "Add context", fields: { text: long("Context") }, needed: ["text"],
    hint: "Facts that the model should know, without an instruction to change its course.",
    command: (values) => ["add-context", values.text],
  },
  extend: {
    label: "Extend budgets", title: "Extend the budgets",
    hint: "Each number is the new limit, not what is added. Empty ones stay.",
    fields: Object.fromEntries(LIMITS.map((name) => [name, { label: words(name), type: "number", minimum: 0 }])),
    command: (values) => ["extend", ...LIMITS.flatMap((name) => option(name, values[name]))],
  },
  override_step: {
    label: "Override the next step", title: "Override the next step", needed: ["skill", "input"],
    hint: "The next step uses this tool or agent instead, with this input. The policy judges it like any other.",
    fields: {
      skill: text("Tool or agent"), input: { ...long("Input"), description: "JSON for a tool, a text for an agent" },
    },
    command: ({ skill, input }) => ["override", skill, typeof input === "object" ? JSON.stringify(input) : input],
  },
  rewind: {
    label: "Rewind", title: "Rewind the run", isDanger: true, needed: ["to_iteration"],
    hint: "The run goes on from the end of this iteration. Later ones are discarded, and their delegates are aborted.",
    fields: { to_iteration: number("Last iteration to keep"), steer: long("Guidance for its next step") },
    command: ({ to_iteration, steer }) => ["rewind", "--to-iteration", to_iteration, ...option("steer", steer)],
  },
  fork: {
    label: "Fork", title: "Fork the run", needed: ["to_iteration"],
    hint: "A new run with the same past goes on from the end of this iteration. This run is not touched.",
    fields: {
      to_iteration: number("Last iteration of the common past"), task: long("Another task for it"),
      model: text("Another model"),
    },
    command: ({ to_iteration, task, changes }) => ["fork", "--to-iteration", to_iteration, ...option("task", task),
      ...option("set", changes && `model=${changes.model}`)],
  },
  abort: {
    label: "Abort", title: "Abort the run", isDanger: true, fields: { reason: text("Reason") },
    hint: "It ends for good, with what it has gathered so far. Its delegates end, too.",
    command: ({ reason }) => ["abort", ...(reason ? [reason] : [])],
  },
  close: {
    label: "End the chat", title: "End the chat", fields: {}, command: () => [],
    hint: "It ends after the turn that is under way. It cannot be taken up again, but another can begin from it.",
  },
};

const POINTLESS = /ended|role|read-only|only a session|no plan|session cannot|of a session/;

/** The control of a kind, or undefined. @param {Pick<Snapshot, "controls">} snapshot @param {string} kind */
export const controlOf = ({ controls }, kind) =>
  controls.find((one) => one.kind === kind && (one.enabled || !POINTLESS.test(one.why)));

/** @param {unknown} value */
export const quoted = (value) => {
  const plain = String(value ?? "");
  return /^[\w@%+=:,./-]+$/.test(plain) ? plain : `'${plain.replaceAll("'", "'\\''")}'`;
};

/** @param {Run} run @param {string} kind @param {Act} act @param {Record<string, any>} values */
function commands(run, kind, { command }, values) {
  const [name, ...rest] = command(values);
  const address = `${location.origin}/api/v1${runPath(run.id)}/actions`;
  const headers =
    `-H 'Content-Type: application/json' -H 'X-Orga-Console: 1' -H "Authorization: Bearer $ORGA_TOKEN"`;
  const body = quoted(JSON.stringify({ id: crypto.randomUUID(), kind, ...values }));
  return [
    ...(name ? [["orga", name, run.id, ...rest].map(quoted).join(" ")] : []),
    `curl ${address} ${headers} -d ${body}`,
  ];
}

/** A sentence about the calls that a rewind discards. @param {Run} run @param {number} after */
function discardedCalls(run, after) {
  /** @type {Map<string, number>} */ const calls = new Map();
  const later = run.records.loaded().filter((record) => record.number > after);
  for (const { tool, state } of later.flatMap((record) => record.calls))
    if (["ok", "failed", "cancelled", "running"].includes(state)) calls.set(tool, (calls.get(tool) ?? 0) + 1);
  const isPartial = (run.records.range.peek()[0] ?? 0) < Math.min(...run.records.byNumber.keys());
  const list = [...calls].map(([tool, times]) => (times > 1 ? `${tool} (${times} times)` : tool)).join(", ");
  const more = isPartial ? ", and earlier ones that this page has not loaded" : "";
  if (!list) return "No call was made after it.";
  return `These calls are discarded: ${list}${more}. Effects that they had outside stay.`;
}

/**
 * True if guidance closes an open question of a goal. Only an override closes a question about the plan.
 * @param {Run} run @param {string} act
 */
const closesQuestion = ({ now: { kind, waits } }, act) => kind === "goal" && waits.some((wait) =>
  wait.kind === "answer" && /^question-\d+$/.test(wait.id) &&
  (act === "override_step" || !wait.question.startsWith("Is this plan right")));

/** Do the act, or ask for values first. @param {Run} run @param {string} kind @param {Record<string, any>} [given] */
export function act(run, kind, given = {}) {
  const known = /** @type {Act} */ (ACTS[kind]);
  if (!known.fields) return void run.send(kind);
  const written = signal(given);
  const values = computed(() => {
    const { model, ...all } = written.value;
    if (/^\s*[{[]/.test(all.input)) all.input = parse(all.input).value;
    return model ? { ...all, changes: { model } } : all;
  });
  const problem = signal("");
  const lost = signal(/** @type {string[]} */ ([]));
  const actionId = crypto.randomUUID();
  /** Rewind or fork. A rewind first shows the effects that nothing undoes. A fork opens the new run. */
  const leap = async () => {
    try {
      const body = { id: actionId, kind, ...values.value, ...(lost.value.length ? { sure: true } : {}) };
      const answer = await post(`${runPath(run.id)}/actions`, body);
      announce(`${known.label}: ${answer.detail || answer.state}`);
      if (answer.run) location.href = runPath(answer.run);
      return true;
    } catch (error) {
      const { detail, errors } = asProblem(error);
      problem.value = errors.length ? "" : detail;
      lost.value = errors.map((one) => one.detail);
      return false;
    }
  };
  const submit = () => {
    // The browser asks for empty fields, so a value that is undefined is malformed JSON.
    const isMalformed = known.needed?.some((name) => values.value[name] === undefined);
    const isEmpty = kind === "extend" && !Object.keys(values.value).length;
    problem.value = isMalformed ? "Input: this is no valid JSON. Correct it" : isEmpty ? "Fill in a new limit" : "";
    if (problem.value) return false;
    if (kind === "rewind" || kind === "fork") return leap();
    const progress = run.send(kind, values.value, values.value.text ?? values.value.reason ?? "");
    effect(() => announce(`${known.label}: ${progress.value.detail}`));
    return true;
  };
  const schema = { properties: known.fields, required: known.needed };
  const isLong = Object.entries(known.fields).flatMap(([name, one]) => (one.isLong ? [name] : []));
  const form = { schema, value: written, long: new Set(isLong) };
  const closes = () => "The open question is closed by it, without an answer. To answer it, use its card.";
  const isGuidance = ["steer", "add_context", "override_step"].includes(kind);
  const warnings = /** @type {Record<string, () => string>} */ ({
    abort: () => "What its calls did outside stays done, and a call that is under way may still take effect.",
    rewind: () => discardedCalls(run, values.value.to_iteration ?? 0),
  });
  const warning = isGuidance && closesQuestion(run, kind) ? closes : warnings[kind];
  dialog({
    title: known.title, action: kind === "abort" ? known.title : known.label, danger: known.isDanger, act: submit,
    body: [
      h("p.soft", known.hint),
      fields(form, keysOf(form)),
      warning ? h("p.warning", warning) : null,
      () => lost.value.length ? h("div.warning", { role: "alert" },
        h("p", h("b", "These calls had effects that nothing undoes. Press the button again to rewind anyway.")),
        h("ul", lost.value.map((line) => h("li", line)))) : null,
      h("p.error", { role: "alert", hidden: () => !problem.value }, problem),
      h("details.commands", h("summary", "As a command"),
        () => commands(run, kind, known, values.value).map((line) => h("div.row", h("code", line), copy(line)))),
    ],
  });
}

/** @param {Run} run @param {Snapshot["controls"][number]} control */
function actButton(run, { kind, enabled, why }) {
  const { label, isDanger } = /** @type {Act} */ (ACTS[kind]);
  return button([label, enabled ? null : h("span.unseen", `: ${why}`)], (event) => {
    /** @type {HTMLElement} */ (event.target).closest("details")?.removeAttribute("open");
    if (enabled) act(run, kind);
    else announce(`${label}: ${why}`);
  }, {
    class: isDanger ? "danger" : kind === "resume" ? "primary" : "", "aria-disabled": enabled ? null : "true",
    title: why || null,
  });
}

/** @param {Run} run @param {string[]} [first] The acts with a button of their own; the others are in the menu. */
export function runControls(run, first = ["pause", "resume", "steer"]) {
  const controls = (/** @type {string[]} */ kinds) => kinds.flatMap((kind) => {
    const isMoot = kind === (run.now.paused ? "pause" : "resume");
    const control = isMoot ? undefined : controlOf(run.now, kind);
    return control ? [control] : [];
  });
  /** A button that has the focus stays when others change. @param {string[]} kinds */
  const buttons = (kinds) => each(() => controls(kinds), ({ kind, enabled, why }) => `${kind} ${enabled} ${why}`,
    (control) => actButton(run, control.peek()));
  const [id, journal] = [encodeURIComponent(run.id), `/api/v1${runPath(run.id)}/journal`];
  const audit = `orga audit ${quoted(run.id)} --policy policies-new`;
  const others = Object.keys(ACTS).filter((kind) => !first.includes(kind) && kind !== "abort");
  const ended = stable(() => run.now.ended);
  /** @param {string} label @param {string} href @param {{download?: string}} [more] */
  const link = (label, href, more) => h("a.button", { href, ...more }, label);
  const menu = h("details.menu", h("summary.button", "More"), h("div.menu-items",
    buttons(others),
    run.now.kind === "session" ? link("Open the chat", `/chat/${id}`) : null,
    () => ended.value ? link("Go on with this run", `/chat/new?from=${id}`) : null,
    link("Start again", `/start?again=${id}`),
    link("Compare with another run", `/compare?a=${id}`),
    link("Export the journal", journal, { download: `${run.id}.jsonl` }),
    link("Export it signed", `${journal}?signed`, { download: `${run.id}.signed.jsonl` }),
    button("Print", () => run.records.need(...run.records.range.peek()).then(() => print())),
    h("div.menu-note",
      h("p.small.soft", "Judge its calls under another policy. This needs the policy's files, so it is a command:"),
      h("p.row", h("code.small", audit), copy(audit))),
    buttons(["abort"])));
  menu.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary")?.focus();
  });
  document.addEventListener("click", ({ target }) => {
    if (!menu.contains(/** @type {Node} */ (target))) menu.open = false;
  });
  return [buttons(first), menu];
}

/** The acts that start from an iteration. @param {Run} run */
export const recordControls = (run) => (/** @type {import("./state.js").IterationRecord} */ { number: at }) => {
  const isEnabled = (/** @type {string} */ kind) => untracked(() => controlOf(run.now, kind)?.enabled);
  const jump = (/** @type {string} */ kind, /** @type {string} */ label) =>
    isEnabled(kind) ? button(label, () => act(run, kind, { to_iteration: at }), { class: "small" }) : null;
  return h("p.row", jump("rewind", "Rewind to here"), jump("fork", "Fork from here"),
    copy(`${location.origin}${runPath(run.id)}?at=${at}&open=${at}`, "Copy link"));
};

/** The visitor's newest act, with its progress. @param {Run} run */
export const newestAct = (run) => h("p.run-sent.small", { role: "status" }, () => {
  const last = run.sent.value.at(-1);
  if (!last) return null;
  const { state, detail } = last.progress.value;
  const isBad = state === "refused" || state === "failed";
  return h("span", { class: isBad ? "error" : "soft" }, `${words(last.kind)}: ${detail}`);
});
