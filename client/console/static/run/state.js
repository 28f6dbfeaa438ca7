// @ts-check
/**
 * What the pages of one run share: its snapshot, its records by iteration, its calls in flight, and what people did.
 *
 *     const run = runState(id)
 *     run.snapshot   signal, as GET /runs/{id}, kept current by the stream;   run.source.problem
 *     run.live       signal of the calls in flight, those of delegates too
 *     run.records    Records
 *     run.send(kind, values)     an action of the visitor; it is in `run.sent` until the journal has it
 */
import { Problem, get, resource, sendAction } from "../api.js";
import { takeActs } from "./events.js";
import { onEvent, subscribe } from "../stream.js";
import { batch, computed, effect, signal } from "../ui.js";

/** @typedef {{head: string, size: number, reference: string|null}} Text */
/** @typedef {{sequence: number|null, event: string, at: string, data: any}} Event_ */
/** @typedef {{id: string, call_id: string, tool: string, arguments: Text, verdict: string|null, policies: string[], reason: string, approver: string|null, attempts: number, state: string, result: Text|null, failure: string|null, started: string|null, ended: string|null, delegate: {id: string, agent: string}|null}} Call */
/** @typedef {{number: number, turn: number|null, prompt?: string|null, started: string|null, ended: string|null, phase: string, model: string|null, usage: any, reply: Text|null, thinking: Text|null, calls: Call[], events: Event_[], scores: number[]}} Record_ */
/** @typedef {ReturnType<typeof runState>} Run */

/** @param {string} id */
export const runPath = (id) => `/runs/${encodeURIComponent(id)}`;

const PAGE = 50;

/** The records of a run by number, as far as they were needed. */
export class Records {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {Map<number, Record_>} */ this.byNumber = new Map();
    /** The first and the last number that the run has; the last is below the first while it is unknown or has none. */
    this.range = signal(/** @type {[number, number]} */ ([0, -1]));
    this.version = signal(0);
    this.problem = signal(/** @type {Problem|null} */ (null));
    this.isLoaded = signal(false);
    /** What people did, by id. @type {Map<string, import("./events.js").Act>} */ this.acts = new Map();
    /** @type {Set<(number: number) => void>} */ this.watchers = new Set();
    /** Pages under way. @type {Set<number>} */ this.asked = new Set();
  }

  /** @param {string} query @param {boolean} [isFresh] Forget all others. */
  async #load(query, isFresh = false) {
    try {
      const page = await get(`${runPath(this.id)}/timeline${query}`);
      batch(() => {
        this.problem.value = null;
        const known = isFresh ? [...this.byNumber.keys()] : [];
        if (isFresh) {
          this.byNumber.clear();
          this.acts.clear();
          this.range.value = [page.first, page.total];
        }
        for (const record of page.items) this.#take(record);
        const last = Math.max(this.range.peek()[1], page.total, page.items.at(-1)?.number ?? -1);
        const [first, before] = this.range.peek();
        if (page.items.length && (first !== page.first || before !== last)) this.range.value = [page.first, last];
        for (const number of known) for (const watch of this.watchers) watch(number);
        this.isLoaded.value = true;
        this.version.value += 1;
      });
    } catch (error) {
      this.problem.value = error instanceof Problem ? error : new Problem(0, String(error));
    }
  }

  loadNewest() {
    return this.#load("");
  }

  /** Load what is missing of these numbers. @param {number} first @param {number} last */
  async need(first, last) {
    /** @type {Promise<void>[]} */ const loading = [];
    for (let number = first; number <= last; number++) {
      if (this.byNumber.has(number)) continue;
      const page = Math.floor(number / PAGE);
      if (this.asked.has(page)) continue;
      this.asked.add(page);
      loading.push(this.#load(`?before=${(page + 1) * PAGE}&limit=${PAGE}`).finally(() => this.asked.delete(page)));
    }
    await Promise.all(loading);
  }

  /** @param {Record_} record */
  #take(record) {
    this.byNumber.set(record.number, record);
    const ids = record.events.filter((event) => event.event === "InterventionApplied").map((event) => this.acts.get(event.data.id)?.number ?? record.number);
    takeActs(record, this.acts);
    for (const watch of this.watchers) for (const number of new Set([record.number, ...ids])) watch(number);
  }

  /** Take a record that has changed. @param {Record_} record */
  put(record) {
    batch(() => {
      this.#take(record);
      const [first, last] = this.range.peek();
      if (record.number > last) this.range.value = last < first ? [record.number, record.number] : [first, record.number];
      this.version.value += 1;
    });
  }

  /** Read everything again, as after a rewind. */
  reset() {
    return this.#load("", true);
  }

  /** The loaded records in their order. */
  loaded() {
    return [...this.byNumber.values()].sort((a, b) => a.number - b.number);
  }
}

/** Events after which the snapshot has news that the stream's `state` does not carry. */
const SNAPSHOT_EVENTS = /^(Prepared|Circuit|Recovery|Delegation|Delivered|Delivery|Model|Terminated|Turn)/;

/** @param {string} id */
export function runState(id) {
  const source = resource(runPath(id));
  const records = new Records(id);
  const live = signal(/** @type {any[]} */ ([]));
  /** The visitor's own actions, newest last. */
  const sent = signal(/** @type {{kind: string, text: string, at: number, progress: ReturnType<typeof sendAction>}[]} */ ([]));
  void records.loadNewest();
  /** @type {number|undefined} */ let planned;
  const reloadSoon = () => {
    clearTimeout(planned);
    planned = setTimeout(() => void source.reload(), 400);
  };
  // The stream begins with the present state and calls in flight. What happened between the page's first answers and
  // that is read then.
  let isStreamed = false;
  const begin = () => {
    if (!isStreamed) void records.loadNewest();
    isStreamed = true;
  };
  effect(() => {
    const found = source.data.value?.live ?? [];
    if (!isStreamed) live.value = found;
  });
  onEvent("state", (data) => {
    if (data.run !== id) return;
    begin();
    const { run: _, ...news } = data;
    const before = source.data.peek();
    if (before) source.data.value = { ...before, ...news };
    if (!before || (news.result && !before.ended) || (before.ended && !news.result)) reloadSoon();
  });
  onEvent("live", (data) => {
    if (data.run !== id) return;
    begin();
    live.value = data.activities;
  });
  onEvent("entry", (data) => {
    if (data.run !== id) return;
    if (data.record) records.put(data.record);
    if (data.entry.event === "InterventionReceived" && data.entry.data.kind === "rewind") void records.reset();
    if (SNAPSHOT_EVENTS.test(data.entry.event) || source.data.peek()?.worker?.present === false) reloadSoon();
  });
  onEvent("resync", ({ topics }) => {
    if (!topics.includes(`run:${id}`)) return;
    isStreamed = false;
    void source.reload();
    void records.reset();
  });
  subscribe([`run:${id}`]);
  // A worker that goes is no event of the run: a run that seems to do nothing is asked whether it has one.
  setInterval(() => {
    const now = source.data.peek();
    const isQuiet = now?.ended === null && !now.waits?.length && !now.paused && now.phase !== "idle" && !live.peek().length;
    if (isQuiet && !document.hidden) reloadSoon();
  }, 15_000);

  /** @param {string} kind @param {Record<string, unknown>} [values] @param {string} [text] */
  const send = (kind, values = {}, text = "") => {
    const progress = sendAction(id, kind, values);
    sent.value = [...sent.peek(), { kind, text, at: Date.now(), progress }].slice(-20);
    return progress;
  };
  return { id, source, snapshot: source.data, live, records, sent, send };
}

/** The view in the address, so that reload, back and a link give the same page. */
export const address = {
  /** @param {string} name */
  get: (name) => new URLSearchParams(location.search).get(name) ?? "",
  /** @param {Record<string, string>} changes @param {boolean} [isStep] Back returns to the view before it. */
  set: (changes, isStep = false) => {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
    const text = query.size ? `?${query}` : location.pathname;
    if ((query.size ? text : "") === location.search) return;
    history[isStep ? "pushState" : "replaceState"](null, "", text);
  },
};

/** A part of the snapshot that changes only when its content does. @template T @param {Run} run @param {(snapshot: any) => T} pick @returns {() => T} */
export function stable(run, pick) {
  const text = computed(() => JSON.stringify(pick(run.snapshot.value) ?? null));
  return () => JSON.parse(text.value);
}
