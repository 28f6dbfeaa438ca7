// @ts-check
/**
 * One record of a run as a row of the timeline, and all of it when the row is open.
 *
 * A row has no live parts, because the list makes rows again while it scrolls. An open record has, in its own scope.
 */
import { runPath } from "../address.js";
import { resource } from "../api.js";
import { bytes, clock, count, exact, money, parse, took, words } from "../format.js";
import { markdown } from "../markdown.js";
import { glyph, stateMark } from "../marks.js";
import { actCourse, actLine, eventLine, takeActs } from "./events.js";
import { h, mount, visible } from "../ui.js";
import { asJson, button, copy, facts, unfold, view } from "../widgets.js";

/** @typedef {import("orga-api").IterationRecord} IterationRecord */
/** @typedef {import("orga-api").TimelineCall} TimelineCall */
/** @typedef {import("orga-api").TimelineText} TimelineText */
/** @typedef {import("../ui.js").Child} Child */

/** @param {string} text The JSON of an object. */
function argumentLine(text) {
  const { value: values } = parse(text);
  if (!values) return text; // it is cut or malformed
  return Object.entries(values)
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ");
}

/** @param {TimelineCall} call */
function outcome({ failure, state, policies, approver, started, ended }) {
  if (failure) return failure;
  const by = approver || policies.join(", ");
  if (state === "denied") return `denied${by ? ` by ${by}` : ""}`;
  return state === "ok" ? took(started, ended) : words(state);
}

/** @param {TimelineCall} call */
export const callLine = (call) =>
  h(`li.it-call.is-${call.state}`, glyph(call.state === "running" ? "acting" : call.state), h("b", call.tool),
    h("span.call-arguments", argumentLine(call.arguments.head).slice(0, 300)),
    h("span.call-outcome", { title: outcome(call) },
      call.attempts > 1 ? `${call.attempts} attempts · ` : "", outcome(call)));

/**
 * The first `most` rows, and the number of the others.
 * @template T @param {T[]} all @param {number} most @param {string} name @param {(one: T) => Child} row
 */
const some = (all, most, name, row) =>
  all.length ? h(`ul.${name}`, all.slice(0, most).map(row),
    all.length > most ? h("li.faint", `and ${all.length - most} more`) : null) : null;

/**
 * @typedef {object} Row
 * @property {boolean} isOpen
 * @property {() => void} toggle
 * @property {string[]} [excerpts]
 * @property {HTMLElement|null} [details]
 * @property {Map<string, import("./events.js").Act>} [acts]
 */
/** @param {IterationRecord} record @param {Row} row */
export function recordRow(record, { isOpen, toggle, excerpts = [], details = null, acts = new Map() }) {
  const { usage, number, reply, calls, started, ended, phase } = record;
  // The row of a held call shows that it waits for a person, and each decision has its own event.
  const events = record.events.filter(({ event, data }) => !event.startsWith("Intervention") &&
    !(event === "ApprovalRequested" && data.tool) && !(event.startsWith("Approval") && data.kind === "approval"));
  const tokens = usage ? usage.input_tokens + usage.output_tokens : 0;
  const prompt = record.prompt && record.prompt !== "reason" ? words(record.prompt.replace("goal_", "")) : "";
  const hasNoText = !reply?.head && !calls.length && number;
  const onclick = (/** @type {any} */ event) =>
    event.target.closest("a, button, input, details, .it-details") || String(getSelection()) || toggle();
  return h("li.it",
    { class: `${isOpen ? "is-open" : ""} ${ended ? "" : "is-current"}`, "data-number": number, onclick },
    button(number || "·", toggle, {
      class: "it-number", "aria-expanded": String(isOpen),
      "aria-label": number === 0 ? "Before iteration 1" : `Iteration ${number}`,
    }),
    h("div.it-body", takeActs(record, acts).map((act) => h(`div.it-act.is-${act.state}`, actLine(act, actCourse(act)))),
      prompt ? h("span.tag", prompt) : null, reply?.head ? h("p.it-reply", reply.head.slice(0, 400)) : null,
      hasNoText ? h("p.it-reply.faint", ended ? "no text" : `${words(phase)}…`) : null,
      excerpts.map((excerpt) => h("p.it-excerpt", excerpt)), some(calls, 6, "calls", callLine),
      some(events, 5, "it-events", (event) => {
        const { state, text: title } = eventLine(event, record.events);
        const origin = event.event === "Started" && event.data.forked_from?.workflow_id;
        const line = origin ? h("a", { href: runPath(origin), title }, title) : h("span", { title }, title);
        return h("li.it-event", glyph(state), line);
      }),
      details),
    h("p.it-figures", clock(started), h("span", took(started, ended)),
      tokens ? h("span", `${count(tokens)} tok`) : null, usage?.cost_usd ? h("span", money(usage.cost_usd)) : null));
}

/**
 * All of a record, in an element with its own scope.
 * @param {string} run @param {number} number @param {(record: IterationRecord) => Child} controls
 */
export function recordDetails(run, number, controls) {
  const element = h("div.it-details");
  let reload = () => {};
  const end = mount(element, () => {
    const whole = resource(`${runPath(run)}/iterations/${number}`);
    reload = whole.reload;
    return view(whole, (record) => [
      record.thinking ? thinking(run, record.thinking) : null,
      prose(run, record.reply),
      record.calls.map((call) => callDetails(run, call)),
      record.events.length
        ? h("details.events", h("summary", `Journal (${record.events.length})`), record.events.map(journal)) : null,
      recordFacts(record),
      controls(record),
    ], 3);
  });
  return { element, end, reload: () => reload() };
}

/** @param {IterationRecord} record */
const recordFacts = ({ model, usage, started, ended, scores }) => facts([
  ["model", model],
  ["tokens", `${count(usage.input_tokens)} in (${count(usage.cached_input_tokens)} cached), ` +
    `${count(usage.output_tokens)} out` +
    (usage.thinking_tokens ? ` (${count(usage.thinking_tokens)} thinking)` : "")],
  ["time", started && `${exact(started)}${ended ? `, ${took(started, ended)}` : ""}`],
  ["scores", scores.join(", ")],
], { class: "small" });

/** @param {string} run @param {TimelineText} text @param {import("../ui.js").Attributes} [more] */
export const thinking = (run, text, more = {}) =>
  h("details.thinking", more, h("summary", `Thinking (${bytes(text.size)})`), textOf(run, text));

/** @param {string} run @param {TimelineText|null} text */
export const prose = (run, text) => text && (text.reference ? textOf(run, text) : markdown(() => text.head));

/**
 * A text that is fetched as a whole if only its beginning is known.
 * @param {string} run @param {TimelineText} text @param {(text: string) => string} [format]
 */
function textOf(run, text, format = (plain) => plain) {
  const shown = h("pre", { tabindex: 0 }, format(text.head));
  if (!text.reference) return shown;
  const address = `/api/v1${runPath(run)}/texts/${encodeURIComponent(text.reference)}`;
  const more = button(`Show all ${bytes(text.size)}`, async () => {
    more.disabled = true;
    const answer = await fetch(address).catch(() => null);
    more.disabled = false;
    if (!answer?.ok) return void (more.textContent = "The console did not send it. Try again");
    shown.textContent = visible(format(await answer.text()));
    more.remove();
  }, { class: "small" });
  const download = h("a.small", { href: `${address}?download`, download: "" }, "Download");
  return h("div.text", shown, h("p.row", more, download));
}

/** @param {string} text */
const pretty = (text) => JSON.stringify(parse(text).value, null, 2) ?? text;

/** @param {string} run @param {TimelineCall} call */
export function callDetails(run, call) {
  const { id, tool, state, verdict, policies, reason, approver, attempts, started, ended, failure, result, delegate } =
    call;
  const judged = verdict && [
    stateMark(verdict),
    policies.length ? [" by ", policies.map((policy) => h("code", policy, " "))] : null,
    ` ${reason}`,
  ];
  return h("section.call-details", { "aria-label": `Call ${id} of ${tool}` },
    h("header", stateMark(state), h("b.mono", tool), h("span.faint.small", id),
      copy(call.arguments.head, "Copy arguments")),
    facts([
      ["verdict", judged],
      [state === "denied" ? "denied by" : "approved by", approver],
      ["attempts", attempts > 1 ? attempts : null],
      ["duration", took(started, ended)],
      ["failure", failure && h("span.bad", failure)],
    ], { class: "small" }),
    h("details", { open: call.arguments.size < 1500 }, h("summary", "Arguments"), textOf(run, call.arguments, pretty)),
    result ? h("details", { open: true }, h("summary", `Result (${bytes(result.size)})`), textOf(run, result)) : null,
    delegate ? delegated(delegate) : null);
}

/** @param {import("orga-api").TimelineDelegate} delegate */
function delegated({ id, agent }) {
  const open = (/** @type {number} */ number) => void (location.href = `${runPath(id)}?open=${number}&at=${number}`);
  const row = (/** @type {IterationRecord} */ record) =>
    recordRow(record, { isOpen: false, toggle: () => open(record.number) });
  return unfold(["Delegated to ", h("b", agent), " ", h("a", { href: runPath(id) }, id)],
    () => view(resource(`${runPath(id)}/timeline?limit=30`), ({ items }) =>
      items.length ? h("ol.its.nested", items.map(row)) : "It has not begun yet.", 3), { class: "delegate" });
}

/** @param {import("orga-api").TimelineEvent} event */
function journal(event) {
  const { state, text } = eventLine(event);
  const summary = h("summary", glyph(state), ` ${text} `, h("span.faint", event.event, " ", clock(event.at)));
  return h("details", summary, asJson(event.data));
}
