// @ts-check
/** The page of one run: what it is and does, what waits for a person, what it may still use, and all that happened. */
import { lineChart } from "./run/charts.js";
import { count, money } from "./format.js";
import { act, newestAct, recordControls, runControls } from "./run/controls.js";
import { actsPanel, head, meters, surroundings, troubles } from "./run/head.js";
import { scoreText } from "./run/plan.js";
import { planPanel } from "./run/plan_panel.js";
import { resultPanel, seesPanel } from "./run/sees.js";
import { address, runState, stable } from "./run/state.js";
import { timelinePanel } from "./run/timeline.js";
import { announce, failed, keys, setTitle, show, skeleton } from "./shell.js";
import { computed, each, effect, h, signal, untracked } from "./ui.js";
import { waitKeys, waitList } from "./waits.js";

const run = runState(decodeURIComponent(location.pathname.split("/")[2] ?? ""));
const isKnown = computed(() => run.snapshot.value !== null);

const TABS = /** @type {[string, string, string?][]} */ ([["overview", "Now"], ["timeline", "Timeline"], ["plan", "Plan"], ["sees", "What the model sees", "Model"], ["result", "Result"]]);

function page() {
  const isNarrow = matchMedia("(max-width: 900px)");
  const kind = stable(run, ({ kind }) => kind);
  const waits = stable(run, ({ waits }) => waits ?? []);
  const ended = stable(run, ({ ended }) => Boolean(ended));
  const standard = () => (ended() && run.snapshot.peek().result ? "result" : isNarrow.matches ? "overview" : "timeline");
  const tab = signal(untracked(() => address.get("tab") || (address.get("at") || address.get("find") || address.get("only") ? "timeline" : standard())));
  const hasTab = (/** @type {string} */ name) => name !== "plan" || kind() === "goal" || Boolean(run.snapshot.value.plan);
  const go = (/** @type {string} */ name) => {
    if (tab.peek() === name) return;
    tab.value = name;
    address.set({ tab: name }, true);
  };
  addEventListener("popstate", () => (tab.value = address.get("tab") || standard()));

  const timeline = timelinePanel(run, address, recordControls(run));
  const jump = (/** @type {number} */ number) => {
    go("timeline");
    requestAnimationFrame(() => void timeline.jump(number));
  };
  /** The panels other than the timeline are made when they are first seen. @type {Record<string, () => HTMLElement>} */
  const makers = { plan: () => planPanel(run, jump), sees: () => seesPanel(run, jump), result: () => resultPanel(run) };
  const seen = signal(/** @type {string[]} */ ([]));
  effect(() => {
    const now = tab.value;
    if (makers[now] && !seen.peek().includes(now)) seen.value = [...seen.peek(), now];
  });
  const panel = (/** @type {string} */ name, /** @type {import("./ui.js").Child} */ content) =>
    h("section", { class: `panel panel-${name}`, id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: () => tab.value !== name }, content);

  /** @param {KeyboardEvent} event */
  const onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = /** @type {HTMLElement[]} */ ([...tabs.querySelectorAll("button")]).filter((one) => one.offsetParent);
    const next = step && all[(all.indexOf(/** @type {HTMLElement} */ (document.activeElement)) + step + all.length) % all.length];
    if (next) (next.focus(), next.click());
  };
  const tabs = h("div.tabs", { role: "tablist", "aria-label": "Views of the run", onkeydown }, TABS.map(([name, label, short]) =>
    h("button", { type: "button", role: "tab", id: `tab-${name}`, class: `tab tab-${name}`, "aria-controls": `panel-${name}`, "aria-selected": () => String(tab.value === name), tabindex: () => (tab.value === name ? 0 : -1), hidden: () => !hasTab(name), onclick: () => go(name), "aria-label": short ? label : null }, short ? [h("span.is-wide", label), h("span.is-narrow", short)] : label,
      name === "overview" ? () => (waits().length ? h("span.number", waits().length) : null) : null)));
  keys(Object.fromEntries(TABS.map(([name, label], at) => [String(at + 1), [`view: ${label}`, () => hasTab(name) && go(name)]])));

  const extend = (/** @type {string} */ name) => act(run, "extend", { [name]: Math.ceil((run.snapshot.peek().budgets.find((/** @type {any} */ one) => one.name === name)?.limit ?? 0) * 1.5) });
  const rail = h("aside.rail", { id: "panel-overview", "aria-label": "The run now" },
    meters(run, extend), charts(),
    h("section", h("h2", "What people did"), actsPanel(run)),
    surroundings(run));
  return h("div.run", { "data-tab": tab },
    head(run, [runControls(run), newestAct(run)]), troubles(run),
    h("section.run-waits", { "aria-label": "What waits for a person" }, waitList(waits)),
    tabs, rail,
    h("div.panels", panel("timeline", timeline.element), each(() => seen.value, (name) => name, (one) => panel(one.peek(), makers[one.peek()]?.()))));
}

function charts() {
  const series = computed(() => {
    void run.records.version.value;
    const records = run.records.loaded();
    let sum = 0;
    return JSON.stringify({
      cost: records.filter((record) => record.usage?.cost_usd).map((record) => ({ x: record.number, y: (sum += record.usage.cost_usd) })),
      score: records.filter((record) => record.scores.length).map((record) => ({ x: record.number, y: record.scores.reduce((a, b) => a + b, 0) / record.scores.length })),
      tokens: records.filter((record) => record.usage?.input_tokens).map((record) => ({ x: record.number, y: record.usage.input_tokens })),
    });
  });
  return h("section.charts", { "aria-label": "Charts" }, () => {
    const { cost, score, tokens } = JSON.parse(series.value);
    return [
      tokens.length ? lineChart({ name: "context, tokens", points: tokens, format: count, low: 0 }) : null,
      cost.length ? lineChart({ name: "cost of these iterations", points: cost, format: money, low: 0 }) : null,
      score.length ? lineChart({ name: "score", points: score, format: scoreText, low: 1, high: 5 }) : null,
    ];
  });
}

waitKeys();
show(() => {
  if (isKnown.value) return untracked(page);
  return run.source.problem.value ? h("div.stack.page-lost", h("h1", "Run"), failed(run.source.problem.value, () => void run.source.reload())) : [h("h1", "Run"), skeleton(8)];
});
effect(() => setTitle(run.snapshot.value?.task?.slice(0, 60) || run.id));
let before = "";
effect(() => {
  const now = run.snapshot.value;
  const state = now ? (now.ended ? `The run has ended: ${now.state}` : now.waits?.length ? "The run waits for a person" : "") : "";
  if (state && state !== before && before !== "") announce(state);
  if (now) before = state || "live";
});
