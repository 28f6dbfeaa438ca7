// @ts-check
/** The head of a run, its meters, its troubles, and what people did to it. */
import { runPath } from "../address.js";
import { count, duration, elapsed, money, time, words } from "../format.js";
import { glyph, stateMark } from "../marks.js";
import { actCourse, actLine } from "./events.js";
import { controlOf, quoted } from "./controls.js";
import { computed, h, stable } from "../ui.js";
import { button, copy } from "../widgets.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("orga-api").BudgetUse} Budget */
/** @typedef {import("../ui.js").Child} Child */

/** @param {Run} run @param {Child} controls */
export function head(run, controls) {
  const facts = stable(() => {
    const { state, detail, stuck, paused, ended, agent, model_in_effect, started_by, tenant, folder, links } =
      run.now;
    return {
      state: stuck ? "stuck" : paused && !ended ? "paused" : state, folder, links,
      detail: ended && detail !== state ? detail : null, guidance: run.now.guidance,
      about: { agent, model: model_in_effect, by: started_by, tenant },
    };
  });
  const { id } = run;
  return h("header.run-head",
    h("div.run-title", h("h1", { title: () => run.now.task }, () => run.now.task || "A run without a task"),
      () => facts.value.guidance
        ? h("p.soft", "It was started with the guidance ", h("q", facts.value.guidance)) : null,
      h("p.run-state", { role: "status" },
        () => [stateMark(facts.value.state), facts.value.detail ? h("span.soft", facts.value.detail) : null])),
    h("div.run-controls.row", controls),
    h("p.run-about", run.now.kind === "agent" ? null : h("span.tag", run.now.kind),
      () =>
        Object.entries(facts.value.about).map(([name, value]) => (value ? h("span", `${name} `, h("b", value)) : null)),
      () => facts.value.folder ? h("span.faint", facts.value.folder) : null, h("span", "began ", time(run.now.started)),
      h("span", () => [run.now.ended ? "took " : "for ", elapsed(run.now.started, run.now.ended)]), () => {
        const { parent, origin, origin_iteration, temporal_ui } = facts.value.links;
        const by = facts.value.about.by;
        const source = `forked from ${origin} at iteration ${origin_iteration}${by ? ` by ${by}` : ""}`;
        const link = (/** @type {string|null} */ href, /** @type {string} */ text, more = {}) =>
          href ? h("a", { href, ...more }, text) : null;
        return [
          link(parent && runPath(parent), "parent"), link(origin && runPath(origin), source),
          link(origin && `/compare?a=${encodeURIComponent(origin)}&b=${encodeURIComponent(id)}`, "compare"),
          link(temporal_ui, "Temporal", { target: "_blank", rel: "noopener noreferrer" }),
        ];
      }, h("span.run-id.mono", id, copy(id), copy(`${location.origin}${runPath(id)}`, "Copy link"))));
}

/** The problems that keep the run from going on, each with its remedy. @param {Run} run */
export function troubles(run) {
  const found = stable(() => {
    const { stuck, worker, ended, folder } = run.now;
    // The command lacks `cd` if the run's folder is the console's own. The reader may be in another folder.
    const needsFolder = folder && !/^cd /.test(worker.command);
    const command = needsFolder ? `cd ${quoted(folder)} && ${worker.command}` : worker.command;
    return ended ? null : { stuck, isAlone: !worker.present, command };
  });
  return () => {
    if (found.value?.stuck)
      return h("section.trouble", { role: "alert" },
        h("h2", glyph("failed"), "No worker can continue this run"), h("p", found.value.stuck));
    if (!found.value?.isAlone) return null;
    const { command } = found.value;
    return h("section.trouble", { role: "alert" }, h("h2", glyph("stuck"), "No worker polls for this run"),
      h("p", "Nothing is lost: it goes on when one does. What you decide now counts then. Start one:"),
      h("p.row", h("code", command), copy(command)));
  };
}

/** @type {Record<string, string>} */
const LABELS = {
  max_iterations: "iterations", max_total_tokens: "tokens", max_cost_usd: "cost", timeout_s: "time",
  max_model_calls: "model calls", max_tool_calls: "tool calls",
};

/** @param {Budget} budget @param {number} value */
export const shownValue = ({ unit }, value) =>
  unit === "usd" ? money(value) : unit === "s" ? duration(value) : count(Math.round(value));

/** The budgets of a run, or what it has used if it has ended. @param {Run["now"]} now @returns {Budget[]} */
function budgetsOf({ budgets, iteration, usage, cost_usd, result }) {
  if (budgets.length) return budgets;
  const used = {
    max_iterations: iteration, max_total_tokens: usage?.total_tokens, max_cost_usd: usage?.cost_usd ?? cost_usd,
    timeout_s: result?.duration_s, max_tool_calls: result?.tool_calls?.run,
  };
  const units = /** @type {Record<string, string>} */ ({ max_cost_usd: "usd", timeout_s: "s" });
  return Object.entries(used).flatMap(([name, value]) =>
    value === null || value === undefined ? [] : [{ name, used: value, limit: null, unit: units[name] ?? "" }]);
}

/** @param {Run} run @param {(name: string, limit: number) => void} extend */
export function meters(run, extend) {
  const shown = stable(() => {
    const { ended, phase } = run.now;
    const mayExtend = controlOf(run.now, "extend")?.enabled ?? false;
    return { budgets: budgetsOf(run.now), isLive: !ended && phase !== "idle", mayExtend };
  });
  return h("section.meters", { "aria-label": "Budgets" }, () => {
    const { budgets, isLive, mayExtend } = shown.value;
    // The run's own clock does not count pauses and waits. Without it, the time since the start counts.
    const spent = budgets.find(({ unit }) => unit === "s")?.used ?? (Date.now() - Date.parse(run.now.started)) / 1000;
    const left = (/** @type {Budget} */ { used, limit }) =>
      isLive && limit !== null && used > 0 && spent >= 5 ? ((limit - used) * spent) / used : Infinity;
    const first = Math.min(...budgets.map(left));
    return budgets.map((budget) => {
      const { name, used, limit } = budget;
      const label = LABELS[name] ?? words(name);
      const value = shownValue(budget, used);
      if (limit === null) return h("div.meter", h("p", h("span", label), h("b.figure", value)));
      const seconds = left(budget);
      const reached = Number.isFinite(seconds) ? Math.min(limit, used + (used / spent) * first) : used;
      const share = limit ? Math.min(100, (used / limit) * 100) : 0;
      const text = `${value} of ${shownValue(budget, limit)}`;
      const outlook = seconds === first ? `reached first, in about ${duration(Math.max(seconds, 1))}`
        : `then at ${shownValue(budget, reached)}`;
      const extension = { class: "quiet small", "aria-label": `Extend ${label}`, title: `Extend ${label}` };
      return h("div.meter", { class: share >= 100 ? "is-full" : seconds === first && share > 75 ? "is-near" : "" },
        h("p", h("span", label), h("span.figure", h("b", value), text.slice(value.length)),
          mayExtend ? button("+", () => extend(name, limit), extension) : null),
        h("div.bar", {
          role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": limit,
          "aria-valuenow": Math.min(used, limit), "aria-valuetext": text,
        },
        h("i.ahead", { style: { width: `${limit ? (reached / limit) * 100 : 0}%` } }),
        h("i", { style: { width: `${share}%` } })),
        Number.isFinite(seconds) ? h("p.faint.small", outlook) : null);
    });
  });
}

/** The acts of people on the run, newest first: sent, received, applied or refused. @param {Run} run */
export function actsPanel(run) {
  const recorded = stable(() => {
    void run.records.version.value;
    return [...run.records.acts.values()].sort((a, b) => b.number - a.number);
  });
  const waiting = computed(() => {
    const ids = new Set(recorded.value.map((act) => act.id));
    return run.sent.value.filter((act) => !ids.has(act.progress.id)).reverse();
  });
  const forked = stable(() => {
    const { guidance, started_by, started, links } = run.now;
    return links.origin ? { guidance, by: started_by ?? "", started, at: links.origin_iteration } : null;
  });
  const beginning = () => forked.value && h("li.act.is-applied",
    actLine({ kind: "fork", text: forked.value.guidance, by: forked.value.by, state: "applied" },
      `at iteration ${forked.value.at}`, " · ", time(forked.value.started)));
  return () => recorded.value.length + waiting.value.length === 0 && !forked.value
    ? h("p.faint.small", "Nobody has steered this run.")
    : h("ol.acts",
      waiting.value.map(({ kind, text, progress }) => h("li.act", { class: () => `is-${progress.value.state}` },
        () => actLine({ kind, text, by: "you", state: progress.value.state }, progress.value.detail))),
      recorded.value.slice(0, 12).map((act) => h(`li.act.is-${act.state}`,
        actLine(act, actCourse(act), act.at ? [" · ", time(act.at)] : null))),
      beginning());
}

/** Delegates, circuits and dead letters, if there are any. @param {Run} run */
export function surroundings(run) {
  const found = stable(() => {
    const { children, circuits, dead_letters: letters } = run.now;
    return { children, circuits, letters, mayRequeue: controlOf(run.now, "requeue")?.enabled ?? false };
  });
  /** @template T @param {string} name @param {T[]} items @param {(one: T) => Child} row */
  const part = (name, items, row) =>
    items.length ? h("section", h("h3", name), h("ul.plain-list", items.map((one) => h("li", row(one))))) : null;
  const requeue = (/** @type {string} */ letter, /** @type {string} */ tool) => found.value.mayRequeue
    ? button("Requeue", () => run.send("requeue", { letter }, tool), { class: "small" }) : null;
  return () => [
    part("Delegates", found.value.children, ({ id, agent, state }) =>
      [stateMark(state), h("a", { href: runPath(id) }, agent || id)]),
    part("Circuits", found.value.circuits, ({ name, state, failures }) => [
      glyph({ open: "failed", closed: "closed" }[state] ?? "stuck"), h("b", name),
      h("small", `${words(state)}, ${failures} failures`)]),
    part("Dead letters", found.value.letters, ({ id, tool, error }) =>
      [glyph("failed"), h("b", tool), h("small", error), requeue(id, tool)]),
  ];
}
