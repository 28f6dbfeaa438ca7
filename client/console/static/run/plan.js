// @ts-check
/** The plan of a goal: a graph in layers, in which each step is right of all steps on which it depends, and a list. */
import { words } from "../format.js";
import { glyph } from "../marks.js";
import { h, s } from "../ui.js";

/** @typedef {import("orga-api").StepRow} Step */
/** @typedef {{x: number, y: number}} Place */
/** @typedef {{selected: string | null, select: (id: string) => void}} Selection */

const [NODE_W, NODE_H, GAP_X, GAP_Y, EDGE] = [164, 54, 36, 16, 12];
const LABEL_CHARS = 17;

/** @type {Record<string, string>} The states of steps that have another name in marks.js. */
const MARKS = { open: "pending", running: "acting" };
/** @type {Record<string, string>} */
const LABELS = { open: "not begun", running: "under way" };

/** @param {string} status */
export const stepMark = (status) => glyph(MARKS[status] ?? status);
/** @param {string} status */
export const stepLabel = (status) => LABELS[status] ?? words(status);

/**
 * Return the layers of a plan. The first has the steps that depend on nothing. The order within a layer avoids crossing
 * lines.
 * Steps in a circle of dependencies, which no valid plan has, are placed as if the circle were cut.
 * @param {Step[]} steps @returns {Step[][]}
 */
function layersOf(steps) {
  const byId = new Map(steps.map((step) => [step.id, step]));
  /** @type {Map<string, number>} */ const depths = new Map();
  const depthOf = (/** @type {Step} */ step, /** @type {Set<string>} */ path) => {
    const known = depths.get(step.id);
    if (known !== undefined) return known;
    const within = new Set(path).add(step.id);
    let depth = 0;
    for (const id of step.depends_on) {
      const before = byId.get(id);
      if (before && !within.has(id)) depth = Math.max(depth, depthOf(before, within) + 1);
    }
    depths.set(step.id, depth);
    return depth;
  };
  /** @type {Step[][]} */ const layers = [];
  for (const step of steps) (layers[depthOf(step, new Set())] ??= []).push(step);
  /** @type {Map<string, number>} */ const rows = new Map();
  const middle = (/** @type {Step} */ step) => {
    const before = step.depends_on.map((id) => rows.get(id)).filter((row) => row !== undefined);
    return before.length ? before.reduce((sum, row) => sum + row, 0) / before.length : 0;
  };
  const filled = layers.filter(Boolean);
  for (const layer of filled) {
    layer.sort((a, b) => middle(a) - middle(b));
    layer.forEach((step, index) => rows.set(step.id, index - (layer.length - 1) / 2));
  }
  return filled;
}

/** @param {Step[]} steps @param {Selection} selection */
export function planGraph(steps, { selected, select }) {
  const layers = layersOf(steps);
  const tallest = Math.max(1, ...layers.map((layer) => layer.length));
  const width = layers.length * (NODE_W + GAP_X) - GAP_X + 2 * EDGE;
  const height = tallest * (NODE_H + GAP_Y) - GAP_Y + 2 * EDGE;
  /** @type {Map<string, Place>} */ const places = new Map();
  layers.forEach((layer, column) => {
    const top = (height - (layer.length * (NODE_H + GAP_Y) - GAP_Y)) / 2;
    const x = EDGE + column * (NODE_W + GAP_X);
    layer.forEach((step, row) => places.set(step.id, { x, y: top + row * (NODE_H + GAP_Y) }));
  });
  const lines = steps.flatMap((step) => step.depends_on.map((id) => line(places.get(id), places.get(step.id),
    `${step.status === "open" ? "is-open" : ""} ${selected === step.id || selected === id ? "is-near" : ""}`)));
  const label = { role: "group", "aria-label": "Plan as a graph" };
  return s("svg.plan-graph", { width, height, viewBox: `0 0 ${width} ${height}`, ...label },
    s("g", { "aria-hidden": "true" }, lines),
    steps.map((step) => node(step, /** @type {Place} */ (places.get(step.id)), step.id === selected, select)));
}

/** @param {Place | undefined} from @param {Place | undefined} to @param {string} kind */
function line(from, to, kind) {
  if (!from || !to) return null;
  const [x1, y1, x2, y2] = [from.x + NODE_W, from.y + NODE_H / 2, to.x, to.y + NODE_H / 2];
  const bend = Math.max(24, (x2 - x1) / 2);
  const curve = `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2 - 3},${y2}`;
  return s("path.plan-line", { class: kind, d: `${curve} m-5,-4 l5,4 l-5,4` });
}

/** @param {Step} step @param {Place} place @param {boolean} isSelected @param {(id: string) => void} select */
function node({ id, skill, status, goal, error, score: value }, place, isSelected, select) {
  const mark = stepMark(status);
  mark.setAttribute("x", "14");
  mark.setAttribute("y", String(NODE_H / 2 - 7));
  const score = value === null ? "" : scoreText(value);
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    select(id);
  };
  return s(`g.plan-node.step-${status}`, {
    transform: `translate(${place.x},${place.y})`, role: "button", tabindex: 0, "aria-pressed": String(isSelected),
    "aria-label": `Step ${id}, ${skill}: ${stepLabel(status)}${score && `, score ${score}`}`,
    onclick: () => select(id), onkeydown,
  },
  s("title", `${id}: ${goal}${error ? `\n${error}` : ""}`),
  s("rect", { width: NODE_W, height: NODE_H, rx: 8 }),
  mark,
  s("text.plan-name", { x: 36, y: 23 }, shortened(id, score ? LABEL_CHARS - 5 : LABEL_CHARS)),
  s("text.plan-skill", { x: 36, y: 40 }, shortened(skill, LABEL_CHARS)),
  score ? s("text.plan-score", { x: NODE_W - 12, y: 23, "text-anchor": "end" }, score) : null);
}

/** @param {Step[]} steps @param {Selection} selection */
export const planList = (steps, { selected, select }) => h("ol.plan-list",
  steps.map(({ id, skill, status, goal, error, score, depends_on }) => {
    const notes = [skill, stepLabel(status), depends_on.length ? `after ${depends_on.join(", ")}` : ""];
    return h(`li.step-${status}`,
      h("button.plan-row", { type: "button", "aria-pressed": String(id === selected), onclick: () => select(id) },
        stepMark(status),
        h("span", h("b", id), ` ${goal}`, h("small", notes.filter(Boolean).join(" · ")),
          error ? h("small.bad", error) : null),
        score === null ? null : h("span.figure", { title: "score" }, scoreText(score))));
  }));

/** @param {number} score */
export const scoreText = (score) => String(Number(score.toFixed(2)));

/** @param {string} text @param {number} most */
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
