// @ts-check
/**
 * The timeline of a run: a row an iteration, newest last, drawn only near the view, with the calls in flight at its end.
 *
 * The address holds what is searched (`find`), filtered (`only`), open (`open`), and the row that was jumped to (`at`).
 */
import { get } from "../api.js";
import { count, elapsed, words } from "../format.js";
import { WindowedList } from "./list.js";
import { eventGroup } from "./events.js";
import { recordDetails, recordRow } from "./record.js";
import { runPath } from "./state.js";
import { empty, failed, keys, skeleton } from "../shell.js";
import { computed, each, effect, h, signal, untracked } from "../ui.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("./state.js").Record_} Record_ */

/** @type {Record<string, [string, (record: Record_) => boolean]>} */
const FILTERS = {
  people: ["what people did", (record) => record.events.some((event) => eventGroup(event) === "people") || record.calls.some((call) => call.approver)],
  failed: ["failed calls", (record) => record.calls.some((call) => call.state === "failed")],
  denied: ["denied or held calls", (record) => record.calls.some((call) => call.state === "denied" || call.verdict === "approval" || call.verdict === "deny")],
  delegates: ["delegated runs", (record) => record.calls.some((call) => call.delegate)],
  recovery: ["recovery and circuits", (record) => record.events.some((event) => eventGroup(event) === "recovery")],
  critics: ["critics and scores", (record) => record.scores.length > 0 || record.events.some((event) => eventGroup(event) === "critics")],
  plan: ["plan and steps", (record) => record.events.some((event) => eventGroup(event) === "plan")],
  context: ["context and knowledge", (record) => record.events.some((event) => eventGroup(event) === "context")],
};

/** @param {Run} run @param {{get: (name: string) => string, set: (changes: Record<string, string>, isStep?: boolean) => void}} address @param {(record: Record_) => import("../ui.js").Child} controls */
export function timelinePanel(run, address, controls) {
  const { records } = run;
  /** @type {Map<number, ReturnType<typeof recordDetails>>} */ const open = new Map();
  const found = signal(/** @type {{text: string, excerpts: Map<number, string[]>, isMore: boolean}|null} */ (null));
  const only = signal(address.get("only"));
  const following = signal(!address.get("at"));
  const looked = signal(0);
  const problem = signal(/** @type {any} */ (null));

  const body = h("ol.its");
  const live = h("div.in-flight", each(() => run.live.value, (one) => `${one.run} ${one.activity_id}`, (one) => inFlight(run, one)));
  const scroller = h("div.timeline", { tabindex: 0, role: "region", "aria-label": "Timeline" }, body, live);

  /** @param {number} number @param {boolean} [isStep] */
  const toggle = (number, isStep = true) => {
    const details = open.get(number);
    if (details) {
      details.end();
      open.delete(number);
    } else open.set(number, untracked(() => recordDetails(run.id, number, controls)));
    if (isStep) {
      list.stopFollowing();
      address.set({ open: [...open.keys()].join(",") });
    }
    list.refresh(number);
  };
  const list = new WindowedList({
    scroller, body, after: live, estimate: 84, follow: following.peek(),
    onFollow: (is) => (following.value = is),
    onWindow: (first, last) => {
      if (!found.peek() && !only.peek()) void records.need(Number(list.keys[first] ?? 0), Number(list.keys[last] ?? -1));
      else for (const key of list.keys.slice(first, last + 1)) void records.need(Number(key), Number(key));
    },
    render: (key) => {
      const record = records.byNumber.get(Number(key));
      if (!record) void records.need(Number(key), Number(key));
      if (!record) return h("li.it.is-missing", h("span.it-number", key), skeleton(1));
      const details = open.get(record.number);
      return recordRow(record, { isOpen: Boolean(details), toggle: () => toggle(record.number), details: details?.element, acts: records.acts, excerpts: found.peek()?.excerpts.get(record.number) });
    },
  });

  // The rows: all, those with the text that is searched, or those that the filter lets through as far as they are loaded.
  const shown = computed(() => {
    const [first, last] = records.range.value;
    const excerpts = found.value?.excerpts;
    /** @type {((record: Record_) => boolean)|undefined} */
    const test = only.value.startsWith("tool:") ? (record) => record.calls.some((call) => `tool:${call.tool}` === only.value) : FILTERS[only.value]?.[1];
    if (!excerpts && test === undefined) return Array.from({ length: last - first + 1 }, (_, index) => first + index);
    if (test !== undefined) void records.version.value;
    const numbers = excerpts ? [...excerpts.keys()].sort((a, b) => a - b) : records.loaded().map((record) => record.number);
    return numbers.filter((number) => {
      const record = records.byNumber.get(number);
      return test === undefined || (record !== undefined && test(record));
    });
  });
  /** @type {string} */ let before = "";
  effect(() => {
    const numbers = shown.value;
    const now = `${numbers.length} ${numbers[0]} ${numbers.at(-1)} ${only.peek()} ${found.peek()?.text}`;
    if (now !== before) list.setKeys(numbers);
    before = now;
  });
  records.watchers.add((number) => {
    list.refresh(number);
    open.get(number)?.reload();
  });
  effect(() => {
    if (only.value && records.isLoaded.value) void lookAtAll(only.value);
  });
  /** Load all records from the newest, because a filter looks at them. @param {string} filter */
  async function lookAtAll(filter) {
    const [first, last] = records.range.peek();
    for (let to = last; to >= first && only.peek() === filter; to -= 100) {
      await records.need(Math.max(first, to - 99), to);
      looked.value = last - Math.max(first, to - 99) + 1;
    }
  }

  /** @param {string} text */
  async function find(text) {
    address.set({ find: text }, true);
    problem.value = null;
    if (!text) return void (found.value = null);
    try {
      const { items, next } = await get(`${runPath(run.id)}/search?text=${encodeURIComponent(text)}`);
      /** @type {Map<number, string[]>} */ const excerpts = new Map();
      for (const item of items) excerpts.set(item.iteration, [...(excerpts.get(item.iteration) ?? []), `${words(item.where)}: ${item.excerpt}`].slice(0, 3));
      found.value = { text, excerpts, isMore: Boolean(next) };
      list.refreshAll();
    } catch (error) {
      problem.value = error;
    }
  }
  /** @param {number} number */
  async function jump(number) {
    const [first, last] = records.range.peek();
    if (last < first) return;
    const wanted = Math.min(last, Math.max(first, number));
    if (found.peek()) await find("");
    only.value = "";
    await records.need(wanted - 5, wanted + 15);
    const row = list.scrollTo(wanted);
    address.set({ at: String(wanted) });
    /** @type {HTMLElement|null|undefined} */ (row?.querySelector(".it-number"))?.focus({ preventScroll: true });
  }
  effect(() => {
    if (following.value) address.set({ at: "" });
  });

  // A reload opens the same rows at the same place.
  const wantsOpen = address.get("open").split(",").filter(Boolean).map(Number);
  for (const number of wantsOpen) toggle(number, false);
  const at = Number(address.get("at"));
  const stopWaiting = effect(() => {
    if (!records.isLoaded.value) return;
    untracked(() => {
      if (at) void jump(at);
      if (address.get("find")) void find(address.get("find"));
    });
    queueMicrotask(() => stopWaiting());
  });

  const search = h("input", { type: "search", placeholder: "Search all texts", "aria-label": "Search all texts", value: address.get("find"), onchange: () => void find(search.value.trim()) });
  const tools = computed(() => {
    void records.version.value;
    return [...new Set(records.loaded().flatMap((record) => record.calls.map((call) => call.tool)))].sort();
  });
  const toolNames = computed(() => tools.value.join("\n"));
  const filter = h("select", { "aria-label": "Show only", onchange: () => ((only.value = filter.value), address.set({ only: filter.value }, true)) },
    h("option", { value: "" }, "Everything"),
    Object.entries(FILTERS).map(([name, [label]]) => h("option", { value: name, selected: only.peek() === name }, label)),
    () => toolNames.value.split("\n").filter(Boolean).map((tool) => h("option", { value: `tool:${tool}`, selected: only.peek() === `tool:${tool}` }, `calls of ${tool}`)));
  const number = h("input", { type: "number", class: "jump", min: 0, placeholder: "Iteration", "aria-label": "Jump to iteration", onchange: () => number.value && void jump(Number(number.value)) });
  keys({ e: ["newest iteration", () => list.toEnd()], "#": ["jump to an iteration", () => number.focus()] });

  const note = () => {
    if (problem.value) return h("span.error", problem.value.detail);
    const [first, last] = records.range.value;
    const total = last - first + 1;
    if (found.value) return [`${count(found.value.excerpts.size)}${found.value.isMore ? " or more" : ""} iterations have “${found.value.text}” `, h("button", { type: "button", class: "small", onclick: () => ((search.value = ""), void find("")) }, "Show all")];
    if (only.value) return looked.value < total ? `${shown.value.length} of the newest ${looked.value} (${count(total)} in all)` : `${shown.value.length} of ${total}`;
    return "";
  };
  const element = h("div.timeline-panel", h("h2.unseen", "Timeline"),
    h("div.toolbar.row", search, filter, number, h("span.soft.small", { role: "status" }, note)),
    () => {
      if (records.problem.value && !records.isLoaded.value) return failed(records.problem.value, () => void records.loadNewest());
      const [first, last] = records.range.value;
      return records.isLoaded.value && last < first && !run.live.value.length ? empty("No iteration yet", "Each step of reasoning stands here as a row, as soon as the run has prepared itself.") : null;
    },
    scroller,
    h("button", { type: "button", class: "newest", hidden: () => following.value, onclick: () => list.toEnd() }, "↓ Newest"));
  return { element, jump, list };
}

/** A call in flight, with its text as it comes. @param {Run} run @param {import("../ui.js").Signal<any>} one */
export function inFlight(run, one) {
  const first = one.peek();
  const isModel = () => one.value.thinking_length > 0 || one.value.text_length > 0;
  return h("section.flight", { "aria-label": `In flight: ${first.name}` },
    h("header", h("span.pulse", { "aria-hidden": "true" }), h("b", words(first.name.replace("goal_", ""))),
      first.run !== run.id ? h("a", { href: runPath(first.run) }, first.run) : null,
      () => (one.value.attempt > 1 ? h("span.tag", `attempt ${one.value.attempt}`) : null),
      h("span.faint", () => (one.value.retry_at ? ["next attempt in ", elapsed(new Date().toISOString(), one.value.retry_at)] : one.value.since ? elapsed(one.value.since, null) : "waits for a worker"))),
    () => (one.value.failure ? h("p.bad.small", `the last attempt failed: ${one.value.failure}`) : null),
    h("details.thinking", { hidden: () => !one.value.thinking }, h("summary", "Thinking"), h("p.plain", () => tail(one.value.thinking, one.value.thinking_length))),
    h("p.plain.flight-text", { hidden: () => !one.value.text && isModel() }, () => tail(one.value.text, one.value.text_length)));
}

/** @param {string} text @param {number} length */
const tail = (text, length) => (length > text.length ? `…${text}` : text);
