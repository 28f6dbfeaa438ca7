// @ts-check
/**
 * The state that the pages of a run share: snapshot, records by iteration, calls in flight, and acts of people.
 *
 *     const run = runState(id)
 *     run.snapshot   signal, as GET /runs/{id}, kept current by the stream;   run.now: its value once it is known
 *     run.live       signal of the calls in flight, those of delegates too
 *     run.records    Records
 *     run.send(kind, values)     sends an action of the visitor, and adds it to `run.sent`
 */
import { runPath } from "../address.js";
import { Problem, asProblem, get, resource, sendAction } from "../api.js";
import { takeActs } from "./events.js";
import { onEvent, subscribe } from "../stream.js";
import { batch, effect, signal } from "../ui.js";

/** @typedef {import("orga-api").IterationRecord} IterationRecord */
/** @typedef {import("orga-api").Live} Live */
/** @typedef {import("orga-api").Answer<"/runs/x">} Snapshot */
/** @typedef {ReturnType<typeof runState>} Run */
/** @typedef {{kind: string, text: string, progress: ReturnType<typeof sendAction>}} Sent */

const PAGE = 50;

/** The loaded records of a run by number. Others are loaded when they are needed. */
class Records {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {Map<number, IterationRecord>} */ this.byNumber = new Map();
    /** The numbers of the first and the last record. The last is lower while none is known. */
    this.range = signal(/** @type {[number, number]} */ ([0, -1]));
    this.version = signal(0);
    this.problem = signal(/** @type {Problem|null} */ (null));
    this.isLoaded = signal(false);
    /** The acts of people, by id. @type {Map<string, import("./events.js").Act>} */ this.acts = new Map();
    /** @type {Set<(number: number) => void>} */ this.watchers = new Set();
    /** Pages that are being loaded. @type {Set<number>} */ this.asked = new Set();
  }

  /** @param {""|`?${string}`} query @param {boolean} [isFresh] Forget all others. */
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
      this.problem.value = asProblem(error);
    }
  }

  loadNewest = () => this.#load("");

  /** Load the missing records among these numbers. @param {number} first @param {number} last */
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

  /** @param {IterationRecord} record */
  #take(record) {
    this.byNumber.set(record.number, record);
    const applied = record.events.filter(({ event }) => event === "InterventionApplied");
    const changed = applied.map(({ data }) => this.acts.get(data.id)?.number ?? record.number);
    takeActs(record, this.acts);
    for (const watch of this.watchers) for (const number of new Set([record.number, ...changed])) watch(number);
  }

  /** Take a record that has changed. @param {IterationRecord} record */
  put(record) {
    batch(() => {
      this.#take(record);
      const [first, last] = this.range.peek();
      if (record.number > last)
        this.range.value = last < first ? [record.number, record.number] : [first, record.number];
      this.version.value += 1;
    });
  }

  /** Read everything again, as after a rewind. */
  reset = () => this.#load("", true);

  /** The loaded records in their order. */
  loaded = () => [...this.byNumber.values()].sort((a, b) => a.number - b.number);
}

/** @param {string} id */
export function runState(id) {
  const source = resource(runPath(id));
  const records = new Records(id);
  const live = signal(/** @type {Live[]} */ ([]));
  /** The visitor's own actions, newest last. */
  const sent = signal(/** @type {Sent[]} */ ([]));
  void records.loadNewest();
  // The stream begins with the current state and calls in flight. Then the newest records are read again, because some
  // may have changed since the page's first answers.
  let isStreamed = false;
  const begin = () => {
    if (!isStreamed) void records.loadNewest();
    isStreamed = true;
  };
  effect(() => {
    const found = source.data.value?.live ?? [];
    if (!isStreamed) live.value = found;
  });
  /** @param {string} event @param {(data: any) => void} take */
  const onRun = (event, take) => onEvent(event, (data) => void (data.run === id && take(data)));
  onRun("state", (data) => {
    begin();
    const before = source.data.peek();
    if (before) source.data.value = { ...before, ...data };
    else void source.reload();
  });
  onRun("live", (data) => {
    begin();
    live.value = data.activities;
  });
  onRun("entry", (data) => {
    if (data.record) records.put(data.record);
    if (data.entry.event === "InterventionReceived" && data.entry.data.kind === "rewind") void records.reset();
  });
  onEvent("resync", ({ topics }) => {
    if (!topics.includes(`run:${id}`)) return;
    isStreamed = false;
    void source.reload();
    void records.reset();
  });
  subscribe([`run:${id}`]);

  /** @param {string} kind @param {Record<string, unknown>} [values] @param {string} [text] */
  const send = (kind, values = {}, text = "") => {
    const progress = sendAction(id, kind, values);
    sent.value = [...sent.peek(), { kind, text, progress }].slice(-20);
    return progress;
  };
  const run = { id, source, snapshot: source.data, live, records, sent, send };
  return Object.defineProperty(
    /** @type {typeof run & {now: Snapshot}} */ (run), "now", { get: () => source.data.value });
}
