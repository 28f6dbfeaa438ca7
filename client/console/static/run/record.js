// @ts-check
/**
 * One record of a run as a row of the timeline, and all of it when the row is open.
 *
 * Rows have no live parts: the list drops and makes them while it scrolls. What is open has, within its own scope.
 */
import { resource } from "../api.js";
import { bytes, count, duration, exact, money, words } from "../format.js";
import { markdown } from "../markdown.js";
import { glyph, stateMark } from "../marks.js";
import { actCourse, eventLine, takeActs } from "./events.js";
import { runPath } from "./state.js";
import { copy, view } from "../shell.js";
import { h, mount, visible } from "../ui.js";

/** @typedef {import("./state.js").Record_} Record_ */
/** @typedef {import("./state.js").Call} Call */
/** @typedef {import("./state.js").Text} Text */

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** @param {string|null} at */
export const clock = (at) => (at ? h("time", { datetime: at, title: exact(at) }, CLOCK.format(new Date(at))) : null);

/** @param {string|null} from @param {string|null} to */
const took = (from, to) => (from && to ? duration((Date.parse(to) - Date.parse(from)) / 1000) : "");

/** @param {Record_} record */
export const recordName = (record) => (record.number === 0 ? "Before iteration 1" : `Iteration ${record.number}`);

/** @param {string} text */
function argumentLine(text) {
  try {
    const values = JSON.parse(text);
    if (values && typeof values === "object" && !Array.isArray(values))
      return Object.entries(values).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ").slice(0, 300);
  } catch {
    // cut or malformed arguments are shown as they are
  }
  return text.slice(0, 300);
}

/** @param {Call} call */
function outcome(call) {
  if (call.failure) return call.failure;
  if (call.state === "denied") return `denied${call.policies.length ? ` by ${call.policies.join(", ")}` : ""}`;
  if (call.state === "ok") return took(call.started, call.ended);
  return words(call.state);
}

/** @param {Call} call */
export const callLine = (call) =>
  h("li", { class: `it-call is-${call.state}` },
    glyph(call.state === "running" ? "acting" : call.state),
    h("b", call.tool),
    h("span.call-arguments", argumentLine(call.arguments.head)),
    h("span.call-outcome", call.attempts > 1 ? `${call.attempts} attempts · ` : "", outcome(call)));

/** @param {import("./state.js").Event_} event */
const chip = (event) => {
  const { state, text } = eventLine(event);
  return h("li.it-event", glyph(state), h("span", text));
};

/** @param {Record_} record @param {{isOpen: boolean, toggle: () => void, excerpts?: string[], details?: HTMLElement|null, acts?: Map<string, import("./events.js").Act>}} options */
export function recordRow(record, { isOpen, toggle, excerpts = [], details = null, acts = new Map() }) {
  const { usage } = record;
  const applied = takeActs(record, acts);
  // The row of a held call says that it waits for a person, and each decision has an event of its own.
  const chips = record.events.filter(({ event, data }) => !event.startsWith("Intervention") && !(event === "ApprovalRequested" && data.tool) && !(event.startsWith("Approval") && data.kind === "approval"));
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  const prompt = record.prompt && record.prompt !== "reason" ? words(record.prompt.replace("goal_", "")) : "";
  const onclick = (/** @type {any} */ event) => {
    if (event.target.closest("a, button, input, details, .it-details") || String(getSelection())) return;
    toggle();
  };
  return h("li", { class: `it${isOpen ? " is-open" : ""}${record.ended ? "" : " is-current"}`, "data-number": record.number, onclick },
    h("button", { type: "button", class: "it-number", "aria-expanded": String(isOpen), "aria-label": recordName(record), onclick: toggle }, record.number || "·"),
    h("div.it-body",
      applied.map((act) => h("p", { class: `it-act is-${act.state}` }, glyph(act.state === "refused" ? "denied" : act.state === "applied" ? "done" : "waiting"),
        h("span", h("b", act.by || "somebody"), ` ${words(act.kind)}`, act.text ? [" ", h("q", act.text)] : null, " ", h("small", actCourse(act))))),
      prompt ? h("span.tag", prompt) : null,
      record.reply?.head ? h("p.it-reply", record.reply.head.slice(0, 400)) : record.calls.length || record.number === 0 ? null : h("p.it-reply.faint", record.ended ? "no text" : `${words(record.phase)}…`),
      excerpts.map((excerpt) => h("p.it-excerpt", excerpt)),
      record.calls.length ? h("ul.calls", record.calls.slice(0, 6).map(callLine), record.calls.length > 6 ? h("li.faint", `and ${record.calls.length - 6} more calls`) : null) : null,
      chips.length ? h("ul.it-events", chips.slice(0, 5).map(chip), chips.length > 5 ? h("li.faint", `and ${chips.length - 5} more`) : null) : null,
      details),
    h("p.it-figures", clock(record.started), h("span", took(record.started, record.ended)), tokens ? h("span", `${count(tokens)} tok`) : null, usage?.cost_usd ? h("span", money(usage.cost_usd)) : null));
}

/**
 * All of a record, in an element with its own scope.
 * @param {string} run @param {number} number @param {(record: Record_) => import("../ui.js").Child} controls @returns {{element: HTMLElement, end: () => void, reload: () => void}}
 */
export function recordDetails(run, number, controls) {
  const element = h("div.it-details");
  const source = { reload: () => {} };
  const end = mount(element, () => {
    const whole = resource(`${runPath(run)}/iterations/${number}`);
    source.reload = whole.reload;
    return view(whole, (record) => [
      record.thinking ? h("details.thinking", h("summary", `Thinking (${bytes(record.thinking.size)})`), textOf(run, record.thinking)) : null,
      record.reply ? longProse(run, record.reply) : null,
      record.calls.map((/** @type {Call} */ call) => callDetails(run, call)),
      record.events.length ? h("details.events", h("summary", `Journal (${record.events.length})`), record.events.map(eventDetails)) : null,
      h("dl.facts.small",
        record.model ? [h("dt", "model"), h("dd", record.model)] : null,
        h("dt", "tokens"), h("dd", `${count(record.usage?.input_tokens)} in (${count(record.usage?.cached_input_tokens)} cached), ${count(record.usage?.output_tokens)} out`, record.usage?.thinking_tokens ? `, ${count(record.usage.thinking_tokens)} of them thinking` : ""),
        record.started ? [h("dt", "time"), h("dd", exact(record.started), record.ended ? `, ${took(record.started, record.ended)}` : "")] : null,
        record.scores.length ? [h("dt", "scores"), h("dd", record.scores.join(", "))] : null),
      controls(record),
    ], 3);
  });
  return { element, end, reload: () => source.reload() };
}

/** @param {string} run @param {Text} text */
const longProse = (run, text) => (text.reference ? textOf(run, text) : markdown(() => text.head));

/** A text that is fetched as a whole where only its beginning is known. @param {string} run @param {Text} text @param {(text: string) => string} [format] */
export function textOf(run, text, format = (plain) => plain) {
  const shown = h("pre", { tabindex: 0 }, format(text.head));
  if (!text.reference) return shown;
  const address = `/api/v1${runPath(run)}/texts/${encodeURIComponent(text.reference)}`;
  const more = h("button", { type: "button", class: "small", onclick: async () => {
    more.disabled = true;
    const answer = await fetch(address).catch(() => null);
    if (!answer?.ok) return void ((more.disabled = false), (more.textContent = "The console did not send it. Try again"));
    shown.textContent = visible(format(await answer.text()));
    more.remove();
  } }, `Show all ${bytes(text.size)}`);
  return h("div.text", shown, h("p.row", more, h("a.small", { href: `${address}?download`, download: "" }, "Download")));
}

/** @param {string} text */
const pretty = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

/** @param {string} run @param {Call} call */
export function callDetails(run, call) {
  const facts = [
    call.verdict ? ["verdict", [stateMark(call.verdict), call.policies.length ? [" by ", call.policies.map((policy) => h("code", policy, " "))] : null, call.reason ? ` ${call.reason}` : null]] : null,
    call.approver ? ["decided by", call.approver] : null,
    call.attempts > 1 ? ["attempts", call.attempts] : null,
    call.started && call.ended ? ["duration", took(call.started, call.ended)] : null,
    call.failure ? ["failure", h("span.bad", call.failure)] : null,
  ].filter((fact) => fact !== null);
  return h("section.call-details", { "aria-label": `Call ${call.id} of ${call.tool}` },
    h("header", stateMark(call.state), h("b.mono", call.tool), h("span.faint.small", call.id), copy(call.arguments.head, "Copy arguments")),
    facts.length ? h("dl.facts.small", facts.map(([name, value]) => [h("dt", name), h("dd", value)])) : null,
    h("details", { open: call.arguments.size < 1500 }, h("summary", "Arguments"), textOf(run, call.arguments, pretty)),
    call.result ? h("details", { open: true }, h("summary", `Result (${bytes(call.result.size)})`), textOf(run, call.result)) : null,
    call.delegate ? delegated(call.delegate) : null);
}

/** @param {{id: string, agent: string}} delegate */
export function delegated(delegate) {
  const body = h("div");
  const ontoggle = () => {
    if (body.firstChild) return;
    mount(body, () => view(resource(`${runPath(delegate.id)}/timeline?limit=30`), (page) =>
      page.items.length ? h("ol.its.nested", page.items.map((/** @type {Record_} */ record) => recordRow(record, { isOpen: false, toggle: () => void (location.href = `${runPath(delegate.id)}?open=${record.number}&at=${record.number}`) }))) : "It has not begun yet.", 3));
  };
  return h("details.delegate", { ontoggle }, h("summary", "Delegated to ", h("b", delegate.agent), " ", h("a", { href: runPath(delegate.id) }, delegate.id)), body);
}

/** @param {import("./state.js").Event_} event */
function eventDetails(event) {
  const { state, text } = eventLine(event);
  return h("details", h("summary", glyph(state), ` ${text} `, h("span.faint", event.event, " ", clock(event.at))), h("pre", { tabindex: 0 }, JSON.stringify(event.data, null, 2)));
}
