// @ts-check
/**
 * What a visitor can do to a run: each act as a row of a table, its form, and the same act as `curl` and as `orga` command.
 *
 * A control is absent where state or role make it pointless, and disabled with its reason where it is only now impossible.
 */
import { post } from "../api.js";
import { words } from "../format.js";
import { runPath, stable } from "./state.js";
import { announce, copy, dialog } from "../shell.js";
import { effect, h, signal } from "../ui.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {{name: string, label: string, type?: "area"|"number"|"json", hint?: string, value?: string|number, isOptional?: boolean}} Field */
/** @typedef {{label: string, title: string, hint: string, fields?: Field[], action?: string, isDanger?: boolean, command: (values: any) => string[]}} Act */

const LIMITS = ["max_iterations", "max_total_tokens", "max_cost_usd", "timeout_s", "max_model_calls", "max_tool_calls"];

/** @param {string} name */
const option = (name) => `--${name.replaceAll("_", "-")}`;
/** @param {any} value @param {string} name */
const optional = (value, name) => (value === undefined || value === "" ? [] : [name, String(value)]);

/** @type {Record<string, Act>} */
const ACTS = {
  pause: { label: "Pause", title: "Pause the run", hint: "", command: () => ["pause"] },
  resume: { label: "Resume", title: "Resume the run", hint: "", command: () => ["resume"] },
  steer: {
    label: "Steer", title: "Steer the run", hint: "The model reads this before its next step. Delegates that are running get it too.",
    fields: [{ name: "text", label: "Guidance", type: "area" }], command: ({ text }) => ["steer", text],
  },
  add_context: {
    label: "Add context", title: "Add context", hint: "Facts that the model should know, without an instruction to change its course.",
    fields: [{ name: "text", label: "Context", type: "area" }], command: ({ text }) => ["add-context", text],
  },
  extend: {
    label: "Extend budgets", title: "Extend the budgets", hint: "Each number is the new limit, not what is added. Empty ones stay.",
    fields: LIMITS.map((name) => ({ name, label: words(name), type: "number", isOptional: true })),
    command: (values) => ["extend", ...LIMITS.flatMap((name) => optional(values[name], option(name)))],
  },
  override_step: {
    label: "Override the next step", title: "Override the next step", hint: "The next step of the plan uses this tool or agent instead, with this input. The policy judges it like any other.",
    fields: [{ name: "skill", label: "Tool or agent" }, { name: "input", label: "Input", type: "json", hint: "JSON for a tool, a text for an agent" }],
    command: ({ skill, input }) => ["override", skill, typeof input === "string" ? input : JSON.stringify(input)],
  },
  rewind: {
    label: "Rewind", title: "Rewind the run", action: "Rewind", isDanger: true, hint: "The run goes on from the end of this iteration. All later ones are discarded, and delegates that work for them are aborted.",
    fields: [{ name: "to_iteration", label: "Last iteration to keep", type: "number" }, { name: "steer", label: "Guidance for its next step", type: "area", isOptional: true }],
    command: ({ to_iteration, steer }) => ["rewind", "--to-iteration", String(to_iteration ?? ""), ...optional(steer, "--steer")],
  },
  fork: {
    label: "Fork", title: "Fork the run", action: "Fork", hint: "A new run with the same past goes on from the end of this iteration. This run is not touched.",
    fields: [{ name: "to_iteration", label: "Last iteration of the common past", type: "number" }, { name: "task", label: "Another task for it", type: "area", isOptional: true }],
    command: ({ to_iteration, task }) => ["fork", "--to-iteration", String(to_iteration ?? ""), ...optional(task, "--task")],
  },
  abort: {
    label: "Abort", title: "Abort the run", action: "Abort the run", isDanger: true, hint: "It ends for good, with what it has gathered so far. Its delegates end, too.",
    fields: [{ name: "reason", label: "Reason", isOptional: true }], command: ({ reason }) => ["abort", ...(reason ? [reason] : [])],
  },
  close: { label: "End the chat", title: "End the chat", action: "End the chat", hint: "It ends after the turn that is under way. It cannot be taken up again, but another can begin from it.", fields: [], command: () => [] },
};

const POINTLESS = /ended|role|read-only|only a session|no plan|session cannot|of a session/;

/** The control of a kind, or undefined if it makes no sense here. @param {any} snapshot @param {string} kind @returns {{kind: string, enabled: boolean, why: string}|undefined} */
export const controlOf = (snapshot, kind) => snapshot?.controls?.find((/** @type {any} */ one) => one.kind === kind && (one.enabled || !POINTLESS.test(one.why)));

/** @param {string} text */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** @param {Run} run @param {string} kind @param {Record<string, any>} values */
export const orgaCommand = (run, kind, values) => {
  const [name = "", ...rest] = /** @type {Act} */ (ACTS[kind]).command(values);
  return name ? ["orga", name, run.id, ...rest].map(quoted).join(" ") : "";
};

/** @param {Run} run @param {string} kind @param {Record<string, any>} values */
export const curlCommand = (run, kind, values) =>
  `curl ${location.origin}/api/v1${runPath(run.id)}/actions -H 'Content-Type: application/json' -H 'X-Orga-Console: 1' -H "Authorization: Bearer $ORGA_CONSOLE_TOKEN" -d ${quoted(JSON.stringify({ id: crypto.randomUUID(), kind, ...values }))}`;

/** What stays done although its iterations are discarded. @param {Run} run @param {number} after */
function effectsAfter(run, after) {
  /** @type {Map<string, number>} */ const calls = new Map();
  for (const record of run.records.loaded()) {
    if (record.number <= after) continue;
    for (const call of record.calls) if (["ok", "failed", "cancelled", "running"].includes(call.state)) calls.set(call.tool, (calls.get(call.tool) ?? 0) + 1);
  }
  const isPartial = (run.records.range.peek()[0] ?? 0) < Math.min(...run.records.byNumber.keys());
  const list = [...calls].map(([tool, times]) => (times > 1 ? `${tool} (${times} times)` : tool)).join(", ");
  return list ? `Nothing undoes what these calls did outside: ${list}${isPartial ? ", and earlier ones that this page has not loaded" : ""}.` : "No call was made after it.";
}

/** Do it, or ask for what it needs first. @param {Run} run @param {string} kind @param {Record<string, any>} [given] */
export function act(run, kind, given = {}) {
  const known = /** @type {Act} */ (ACTS[kind]);
  if (!known.fields) return void run.send(kind);
  const values = signal(/** @type {Record<string, any>} */ ({}));
  const problem = signal("");
  const inputs = known.fields.map((field) => ({ field, input: h(field.type === "area" || field.type === "json" ? "textarea" : "input", {
    name: field.name, rows: field.type === "area" ? 4 : 2, type: field.type === "number" ? "number" : null, min: 0, step: "any", value: given[field.name] ?? field.value ?? "", oninput: () => read(), placeholder: field.hint ?? "",
  }) }));
  const read = () => {
    problem.value = "";
    /** @type {Record<string, any>} */ const found = {};
    for (const { field, input } of inputs) {
      const text = input.value.trim();
      if (!text) continue;
      found[field.name] = field.type === "number" ? Number(text) : text;
      if (field.type === "json" && /^[{[]/.test(text)) {
        try {
          found[field.name] = JSON.parse(text);
        } catch {
          problem.value = `${field.label}: this is no valid JSON. Correct it, or write plain text`;
        }
      }
    }
    values.value = found;
  };
  read();
  const lost = signal(/** @type {string[]} */ ([]));
  const submit = () => {
    read();
    const missing = known.fields?.find((field) => !field.isOptional && values.value[field.name] === undefined);
    if (missing) problem.value = `${missing.label}: this is empty. Fill it in`;
    if (kind === "extend" && !Object.keys(values.value).length) problem.value = "Fill in the new limit of at least one budget";
    if (problem.value) return;
    if (kind === "rewind" || kind === "fork") return void leap();
    box.close();
    const progress = run.send(kind, values.value, values.value.text ?? values.value.reason ?? "");
    effect(() => announce(`${known.label}: ${progress.value.detail}`));
  };
  /** A rewind first names what nothing undoes; a fork opens the new run. */
  const leap = async () => {
    try {
      const answer = await post(`${runPath(run.id)}/actions`, { id: actionId, kind, ...values.value, ...(lost.value.length ? { sure: true } : {}) });
      box.close();
      announce(`${known.label}: ${answer.detail || answer.state}`);
      if (answer.run) location.href = runPath(answer.run);
    } catch (error) {
      const { detail = String(error), errors = [] } = /** @type {any} */ (error);
      problem.value = errors.length ? "" : detail;
      lost.value = errors.map((/** @type {any} */ one) => one.detail);
    }
  };
  const actionId = crypto.randomUUID();
  const commands = h("details.commands", h("summary", "As a command"),
    () => [orgaCommand(run, kind, values.value), curlCommand(run, kind, values.value)].filter(Boolean).map((text) => h("div.row", h("code", text), copy(text))));
  const warning = () => (kind === "abort" ? "What its calls did outside stays done, and a call that is under way may still take effect." : kind === "rewind" ? effectsAfter(run, values.value.to_iteration ?? 0) : "");
  const form = h("form.stack", { onsubmit: (/** @type {any} */ event) => (event.preventDefault(), submit()) },
    h("p.soft", known.hint),
    inputs.map(({ field, input }) => h("label.stack", field.label, input)),
    known.isDanger ? h("p.warning", warning) : null,
    () => (lost.value.length ? h("div.warning", { role: "alert" }, h("p", h("b", "These calls had effects that nothing undoes. Press the button again to rewind anyway.")), h("ul", lost.value.map((line) => h("li", line)))) : null),
    h("p.error", { role: "alert", hidden: () => !problem.value }, problem),
    commands);
  form.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit());
  const box = dialog(known.title, [form], (close) => [
    h("button", { type: "button", onclick: () => close() }, "Cancel"),
    h("button", { type: "button", class: known.isDanger ? "danger" : "primary", onclick: submit }, known.action ?? known.label),
  ]);
  inputs[0]?.input.focus();
}

/** @param {Run} run @param {any} snapshot @param {string} kind @param {Record<string, any>} [more] */
function button(run, snapshot, kind, more = {}) {
  const control = controlOf(snapshot, kind);
  if (!control) return null;
  const known = /** @type {Act} */ (ACTS[kind]);
  return h("button", { type: "button", class: known.isDanger ? "danger" : null, "aria-disabled": control.enabled ? null : "true", title: control.why || null, ...more,
    onclick: (/** @type {any} */ event) => {
      event.target.closest("details")?.removeAttribute("open");
      if (control.enabled) act(run, kind);
      else announce(`${known.label}: ${control.why}`);
    } }, known.label, control.enabled ? null : h("span.unseen", `: ${control.why}`));
}

/** A run is either paused or resumed. @param {any} snapshot @param {string} kind */
const isMoot = (snapshot, kind) => (kind === "pause" && snapshot.paused) || (kind === "resume" && !snapshot.paused);

/** @param {Run} run @param {string[]} [first] The acts with a button of their own; the others are in the menu. */
export function runControls(run, first = ["pause", "resume", "steer"]) {
  const found = stable(run, ({ controls, ended, kind, paused }) => ({ controls, ended, kind, paused }));
  const path = `/api/v1${runPath(run.id)}`;
  const audit = `orga audit ${quoted(run.id)} --policy policies-new`;
  const menu = h("details.menu", h("summary.button", "More"),
    h("div.menu-items", () => {
      const snapshot = found();
      return [
        ["pause", "resume", "steer", "add_context", "extend", "override_step", "rewind", "fork", "close"].map((kind) => first.includes(kind) || isMoot(snapshot, kind) ? null : button(run, snapshot, kind)),
        snapshot.kind === "session" ? h("a.button", { href: `/chat/${encodeURIComponent(run.id)}` }, "Open the chat") : null,
        snapshot.ended ? h("a.button", { href: `/chat/new?from=${encodeURIComponent(run.id)}` }, "Go on with this run") : null,
        h("a.button", { href: `/start?again=${encodeURIComponent(run.id)}` }, "Start again"),
        h("a.button", { href: `/compare?a=${encodeURIComponent(run.id)}` }, "Compare with another run"),
        h("a.button", { href: `${path}/journal`, download: `${run.id}.jsonl` }, "Export the journal"),
        h("a.button", { href: `${path}/journal?signed`, download: `${run.id}.signed.jsonl` }, "Export it signed"),
        h("button", { type: "button", onclick: () => void run.records.need(...run.records.range.peek()).then(() => print()) }, "Print"),
        h("div.menu-note", h("p.small.soft", "Judge it again under another policy:"), h("p.row", h("code.small", audit), copy(audit))),
        button(run, snapshot, "abort"),
      ];
    }));
  menu.addEventListener("keydown", (event) => event.key === "Escape" && (menu.removeAttribute("open"), menu.querySelector("summary")?.focus()));
  document.addEventListener("click", (event) => menu.contains(/** @type {Node} */ (event.target)) || menu.removeAttribute("open"));
  return [
    () => first.map((kind) => (isMoot(found(), kind) ? null : button(run, found(), kind, kind === "resume" ? { class: "primary" } : {}))),
    menu,
  ];
}

/** What can be done at an iteration. @param {Run} run */
export const recordControls = (run) => (/** @type {import("./state.js").Record_} */ record) => {
  const snapshot = run.snapshot.peek();
  const at = { to_iteration: record.number };
  return h("p.row",
    ["rewind", "fork"].map((kind) => controlOf(snapshot, kind)?.enabled ? h("button", { type: "button", class: "small", onclick: () => act(run, kind, at) }, kind === "rewind" ? "Rewind to here" : "Fork from here") : null),
    copy(`${location.origin}${runPath(run.id)}?at=${record.number}&open=${record.number}`, "Copy link"));
};

/** The newest act of the visitor, for as long as it is news. @param {Run} run */
export const newestAct = (run) => h("p.run-sent.small", { role: "status" }, () => {
  const last = run.sent.value.at(-1);
  if (!last) return null;
  const { state, detail } = last.progress.value;
  return h("span", { class: ["refused", "failed"].includes(state) ? "error" : "soft" }, `${words(last.kind)}: ${detail}`);
});
