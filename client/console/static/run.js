// @ts-check
/** The page of one run: what it is and does, what waits for a person, what it may still use, and all that happened. */
import { address, pageId } from "./address.js";
import { count, money } from "./format.js";
import { act, newestAct, recordControls, runControls } from "./run/controls.js";
import { actsPanel, head, meters, surroundings, troubles } from "./run/head.js";
import { scoreText } from "./run/plan.js";
import { planPanel } from "./run/plan_panel.js";
import { resultPanel, seesPanel } from "./run/sees.js";
import { runState } from "./run/state.js";
import { timelinePanel } from "./run/timeline.js";
import { announce, keys, setTitle, show } from "./shell.js";
import { computed, each, effect, h, onChange, s, signal, stable, untracked } from "./ui.js";
import { waitKeys, waitList } from "./waits.js";
import { pageOf } from "./widgets.js";

const run = runState(pageId());

/** The name of each view, its label, and a short label for narrow screens. @type {[string, string, string?][]} */
const TABS = [
  ["overview", "Now"], ["timeline", "Timeline"], ["plan", "Plan"], ["sees", "What the model sees", "Model"],
  ["result", "Result"],
];

function page() {
  const hasPlan = computed(() => run.now.kind === "goal" || run.now.plan !== null);
  const waits = stable(() => run.now.waits);
  const hasEnded = stable(() => Boolean(run.now.ended));
  const standard = run.now.result ? "result" : matchMedia("(max-width: 900px)").matches ? "overview" : "timeline";
  const isElsewhere = ["at", "find", "only"].some(address.get);
  const tab = computed(() => address.get("tab") || (isElsewhere ? "timeline" : standard));
  const hasTab = (/** @type {string} */ name) => name !== "plan" || hasPlan.value;
  const go = (/** @type {string} */ name) => tab.peek() === name || address.set({ tab: name }, true);

  const timeline = timelinePanel(run, recordControls(run));
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
  /** @param {string} name @param {import("./ui.js").Child} content */
  const panel = (name, content) => h(`section.panel.panel-${name}`, {
    id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: () => tab.value !== name,
  }, content);

  /** @param {KeyboardEvent} event */
  const onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...tabs.querySelectorAll("button")].filter((one) => one.offsetParent);
    const next = step && all[(all.findIndex((one) => one === document.activeElement) + step + all.length) % all.length];
    if (next) (next.focus(), next.click());
  };
  const tabs = h("div.tabs", { role: "tablist", "aria-label": "Views of the run", onkeydown },
    TABS.map(([name, label, short]) => h(`button.tab.tab-${name}`, {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`,
      "aria-label": short ? label : null, "aria-selected": () => String(tab.value === name),
      tabindex: () => (tab.value === name ? 0 : -1), hidden: () => !hasTab(name), onclick: () => go(name),
    },
    short ? [h("span.is-wide", label), h("span.is-narrow", short)] : label,
    name === "overview" ? () => (waits.value.length ? h("span.number", waits.value.length) : null) : null)));
  keys(Object.fromEntries(TABS.map(([name, label], at) =>
    [String(at + 1), [`view: ${label}`, () => hasTab(name) && go(name)]])));

  const rail = h("aside.rail", { id: "panel-overview", "aria-label": "The run now" },
    meters(run, (name, limit) => act(run, "extend", { [name]: Math.ceil(limit * 1.5) })), charts(),
    h("section", h("h2", "What people did"), actsPanel(run)), surroundings(run));
  return h("div.run", { "data-tab": tab },
    head(run, [runControls(run), newestAct(run)]), troubles(run),
    h("section.run-waits", { "aria-label": "What waits for a person", hidden: () => hasEnded.value },
      waitList(() => waits.value)),
    tabs, rail,
    h("div.panels", panel("timeline", timeline.element),
      each(() => seen.value, (name) => name, (one) => panel(one.peek(), makers[one.peek()]?.()))));
}

// Small line charts: the name and the newest value are text, and the line has both its ends in its accessible name
/** @typedef {{x: number, y: number}} Point */
/** @typedef {(value: number) => string} Format */

const [WIDTH, HEIGHT, EDGE] = [240, 44, 4];
const MOST_POINTS = 120;

function charts() {
  const series = stable(() => {
    void run.records.version.value;
    /** @param {(record: import("orga-api").IterationRecord) => number|null|undefined} read */
    const points = (read) => thinned(run.records.loaded().flatMap((record) => {
      const y = read(record);
      return y ? [{ x: record.number, y }] : [];
    }));
    let sum = 0;
    return {
      tokens: points(({ usage }) => usage?.input_tokens),
      cost: points(({ usage }) => (usage?.cost_usd ? (sum += usage.cost_usd) : null)),
      score: points(({ scores }) => scores.reduce((a, b) => a + b, 0) / scores.length),
    };
  });
  return h("section.charts", { "aria-label": "Charts" }, () => [
    chart("context, tokens", series.value.tokens, count, 0),
    chart("cost of these iterations", series.value.cost, money, 0),
    chart("score", series.value.score, scoreText, 1, 5),
  ]);
}

/** @param {string} name @param {Point[]} points @param {Format} format @param {number} low @param {number} [high] */
function chart(name, points, format, low, high = Math.max(...points.map(({ y }) => y))) {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return null;
  const place = (/** @type {Point} */ { x, y }) => [
    EDGE + ((x - first.x) / (last.x - first.x || 1)) * (WIDTH - 2 * EDGE),
    HEIGHT - EDGE - ((y - low) / (high - low || 1)) * (HEIGHT - 2 * EDGE),
  ];
  const path = points.map((point) => place(point).map((value) => value.toFixed(1)).join(",")).join(" L");
  const [endX, endY] = place(last);
  const label = `${name}: from ${format(first.y)} at iteration ${first.x} to ${format(last.y)} at iteration ${last.x}`;
  const line = { "vector-effect": "non-scaling-stroke" };
  return h("figure.chart", h("figcaption", name, h("b.figure", format(last.y))),
    points.length < 2 ? null
      : s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
        s("path.chart-area", { d: `M${EDGE},${HEIGHT} L${path} L${endX},${HEIGHT} Z` }),
        s("path.chart-line", { d: `M${path}`, ...line }),
        s("path.chart-end", { d: `M${endX},${endY} h0.01`, ...line })));
}

/** At most `MOST_POINTS` of the points, with the first and the last. @param {Point[]} points @returns {Point[]} */
function thinned(points) {
  if (points.length <= MOST_POINTS) return points;
  const step = (points.length - 1) / (MOST_POINTS - 1);
  return Array.from({ length: MOST_POINTS }, (_, index) => /** @type {Point} */ (points[Math.round(index * step)]));
}

waitKeys();
show(pageOf("Run", run.source, page));
effect(() => setTitle(run.snapshot.value?.task.slice(0, 60) || run.id));
const news = computed(() => {
  const now = run.snapshot.value;
  if (!now) return "";
  return now.ended ? `The run has ended: ${now.state}` : now.waits.length ? "The run waits for a person" : "live";
});
let before = "";
effect(() => {
  if (before && news.value !== "live") announce(news.value);
  before = news.value;
});
