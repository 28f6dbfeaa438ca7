// @ts-check
/**
 * The timeline of a run: a row an iteration, newest last, drawn only near the view, and the calls in flight.
 *
 * The address holds what is searched (`find`), filtered (`only`), open (`open`), and the row that was jumped to (`at`).
 */
import { address, runPath } from "../address.js";
import { resource } from "../api.js";
import { count, elapsed, words } from "../format.js";
import { WindowedList } from "./list.js";
import { eventGroup } from "./events.js";
import { recordDetails, recordRow } from "./record.js";
import { keys } from "../shell.js";
import { computed, each, effect, h, onChange, signal, stable, untracked } from "../ui.js";
import { button, empty, failed, skeleton } from "../widgets.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("./state.js").IterationRecord} IterationRecord */

/** @param {string} group */
const has = (group) => (/** @type {IterationRecord} */ { events }) => events.some(
  (event) => eventGroup(event) === group);
/** @param {(call: IterationRecord["calls"][number]) => unknown} test */
const calls = (test) => (/** @type {IterationRecord} */ record) => record.calls.some(test);

/** @type {Record<string, [string, ...((record: IterationRecord) => boolean)[]]>} */
const FILTERS = {
  people: ["what people did", has("people"), calls((call) => call.approver)],
  failed: ["failed calls", calls((call) => call.state === "failed")],
  denied: [
    "denied or held calls",
    calls(({ state, verdict }) => state === "denied" || verdict === "approval" || verdict === "deny")
  ],
  delegates: ["delegated runs", calls((call) => call.delegate)],
  recovery: ["recovery and circuits", has("recovery")],
  critics: ["critics and scores", (record) => record.scores.length > 0, has("critics")],
  plan: ["plan and steps", has("plan")],
  context: ["context and knowledge", has("context")],
};

/** @param {string} name @param {IterationRecord} record */
function passes(name, record) {
  const [, ...tests] = FILTERS[name] ?? ["", calls((call) => `tool:${call.tool}` === name)];
  return tests.some((test) => test(record));
}

/** @param {Run} run @param {(record: IterationRecord) => import("../ui.js").Child} controls */
export function timelinePanel(run, controls) {
  const { records } = run;
  /** @type {Map<number, ReturnType<typeof recordDetails>>} */ const open = new Map();
  const only = computed(() => address.get("only"));
  const text = computed(() => address.get("find"));
  const search = computed(() => {
    const path = /** @type {const} */ (`${runPath(run.id)}/search?text=${encodeURIComponent(text.value)}`);
    return text.value ? untracked(() => resource(path)) : null;
  });
  const excerpts = computed(() => {
    const items = search.value?.data.value?.items;
    if (!items) return null;
    /** @type {Map<number, string[]>} */ const all = new Map();
    for (const { iteration, where, excerpt } of items)
      all.set(iteration, [...(all.get(iteration) ?? []), `${words(where)}: ${excerpt}`].slice(0, 3));
    return all;
  });
  const following = signal(!address.get("at"));
  const looked = signal(0);

  const body = h("ol.its");
  const live = h(
    "div.in-flight", each(() => run.live.value, (one) => `${one.run} ${one.activity_id}`, (one) => inFlight(run, one)));
  const scroller = h("div.timeline", { tabindex: 0, role: "region", "aria-label": "Timeline" }, body, live);

  /** @param {number} number */
  const openRow = (number) => open.set(number, untracked(() => recordDetails(run.id, number, controls)));
  /** @param {number} number */
  const toggle = (number) => {
    open.get(number)?.end();
    if (!open.delete(number)) openRow(number);
    list.stopFollowing();
    address.set({ open: [...open.keys()].join(",") });
    list.refresh(number);
  };
  for (const number of address.get("open").split(",")) if (number) openRow(Number(number)); // as before a reload
  const list = new WindowedList({
    scroller, body, after: live, estimate: 84, follow: following.peek(),
    onFollow: (is) => (following.value = is),
    onWindow: (first, last) => {
      for (const key of list.keys.slice(first, last + 1)) void records.need(Number(key), Number(key));
    },
    render: (key) => {
      const number = Number(key);
      const record = records.byNumber.get(number);
      if (!record) void records.need(number, number);
      if (!record) return h("li.it.is-missing", h("span.it-number", number), skeleton(1));
      const details = open.get(number)?.element;
      return recordRow(record, {
        isOpen: Boolean(details), toggle: () => toggle(number), details, acts: records.acts,
        excerpts: excerpts.peek()?.get(number),
      });
    },
  });

  // The rows: all, those with the text that is searched, and of these the loaded ones that pass the filter.
  const shown = stable(() => {
    const [first, last] = records.range.value;
    const all = excerpts.value ? [...excerpts.value.keys()].sort((a, b) => a - b)
      : Array.from({ length: last - first + 1 }, (_, index) => first + index);
    if (!only.value) return all;
    void records.version.value;
    return all.filter((number) => {
      const record = records.byNumber.get(number);
      return record && passes(only.value, record);
    });
  });
  effect(() => list.setKeys(shown.value));
  onChange(() => excerpts.value, () => list.refreshAll());
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

  /** @param {number} number */
  async function jump(number) {
    const [first, last] = records.range.peek();
    if (last < first) return;
    const wanted = Math.min(last, Math.max(first, number));
    await records.need(wanted - 5, wanted + 15);
    address.set({ find: "", only: "", at: String(wanted) });
    const row = list.scrollTo(wanted);
    /** @type {HTMLElement|null|undefined} */ (row?.querySelector(".it-number"))?.focus({ preventScroll: true });
  }
  effect(() => {
    if (following.value) address.set({ at: "" });
  });
  const at = Number(address.get("at"));
  const stopWaiting = effect(() => {
    if (!records.isLoaded.value) return;
    if (at) untracked(() => void jump(at));
    queueMicrotask(() => stopWaiting());
  });

  const input = h("input", {
    type: "search", placeholder: "Search all texts", "aria-label": "Search all texts", value: text,
    onchange: () => address.set({ find: input.value.trim() }, true),
  });
  const tools = stable(() => {
    void records.version.value;
    return [...new Set(records.loaded().flatMap((record) => record.calls.map((call) => call.tool)))].sort();
  });
  const filter = h("select",
    { "aria-label": "Show only", value: only, onchange: () => address.set({ only: filter.value }, true) },
    h("option", { value: "" }, "Everything"),
    Object.entries(FILTERS).map(([value, [label]]) => h("option", { value }, label)), () => tools.value.map((tool) => {
      const value = `tool:${tool}`;
      return h("option", { value, selected: only.peek() === value }, `calls of ${tool}`);
    }));
  const number = h("input.jump", {
    type: "number", min: 0, placeholder: "Iteration", "aria-label": "Jump to iteration",
    onchange: () => number.value && void jump(Number(number.value)),
  });
  keys({ e: ["newest iteration", () => list.toEnd()], "#": ["jump to an iteration", () => number.focus()] });

  const note = () => {
    const total = Math.max(0, records.range.value[1] - records.range.value[0] + 1);
    if (search.value?.problem.value) return h("span.error", search.value.problem.value.detail);
    if (text.value && !excerpts.value) return "searching…";
    if (excerpts.value)
      return [
        `${count(excerpts.value.size)}${search.value?.data.value?.next ? " or more" : ""} iterations have “${
          text.value}” `,
        button("Show all", () => address.set({ find: "" }, true), { class: "small" }),
      ];
    if (!only.value) return "";
    const isPartial = looked.value < total;
    return `${shown.value.length} of ${isPartial ? `the newest ${looked.value} (${count(total)} in all)` : total}`;
  };
  const element = h("div.timeline-panel", h("h2.unseen", "Timeline"),
    h("div.toolbar.row", input, filter, number, h("span.soft.small", { role: "status" }, note)),
    () => {
      if (!records.isLoaded.value)
        return records.problem.value ? failed(records.problem.value, () => void records.loadNewest()) : null;
      const [first, last] = records.range.value;
      return last < first && !run.live.value.length
        ? empty("No iteration yet", "Each step of reasoning is shown here as a row, once the run is prepared.") : null;
    },
    scroller,
    button("↓ Newest", () => list.toEnd(), { class: "newest", hidden: () => following.value }));
  return { element, jump };
}

/** @typedef {import("../ui.js").Signal<import("./state.js").Live>} LiveCall */

/** A call in flight, with its text as it comes. @param {Run} run @param {LiveCall} one */
export function inFlight(run, one) {
  const { name, run: owner } = one.peek();
  const state = () => {
    const { retry_at, since } = one.value;
    if (retry_at) return ["next attempt in ", elapsed(new Date().toISOString(), retry_at)];
    return since ? elapsed(since, null) : "waits for a worker";
  };
  return h("section.flight", { "aria-label": `In flight: ${name}` },
    h("header", h("span.pulse", { "aria-hidden": "true" }), h("b", words(name.replace("goal_", ""))),
      owner === run.id ? null : h("a", { href: runPath(owner) }, owner),
      () => (one.value.attempt > 1 ? h("span.tag", `attempt ${one.value.attempt}`) : null),
      h("span.faint", state)),
    () => (one.value.failure ? h("p.bad.small", `the last attempt failed: ${one.value.failure}`) : null),
    h("details.thinking", { hidden: () => !one.value.thinking }, h("summary", "Thinking"),
      h("p.plain", () => tail(one.value.thinking, one.value.thinking_length))),
    h("p.plain.flight-text", { hidden: () => !one.value.text }, () => tail(one.value.text, one.value.text_length)));
}

/** @param {string} text @param {number} length */
const tail = (text, length) => (length > text.length ? `…${text}` : text);
