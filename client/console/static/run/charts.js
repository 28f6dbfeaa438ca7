// @ts-check
/** Small line charts: the name and the newest value are text, and the line has both its ends in its accessible name. */
import { h, s } from "../ui.js";

/** @typedef {{x: number, y: number}} Point */
/** @typedef {{name: string, points: Point[], format: (value: number) => string, low?: number, high?: number}} Chart */

const [WIDTH, HEIGHT, EDGE] = [240, 44, 4];
const MOST_POINTS = 120;

/** @param {Chart} chart */
export function lineChart({ name, points, format, low, high }) {
  const newest = points.at(-1);
  return h("figure.chart",
    h("figcaption", name, h("b.figure", newest ? format(newest.y) : "none yet")),
    points.length > 1 ? line(name, thinned(points), format, low, high) : null);
}

/** @param {string} name @param {Point[]} points @param {(value: number) => string} format @param {number} [low] @param {number} [high] */
function line(name, points, format, low, high) {
  const ys = points.map((point) => point.y);
  const [bottom, top] = [low ?? Math.min(...ys), high ?? Math.max(...ys)];
  const [first, last] = [/** @type {Point} */ (points[0]), /** @type {Point} */ (points.at(-1))];
  const place = (/** @type {Point} */ { x, y }) => [
    EDGE + ((x - first.x) / (last.x - first.x || 1)) * (WIDTH - 2 * EDGE),
    HEIGHT - EDGE - ((y - bottom) / (top - bottom || 1)) * (HEIGHT - 2 * EDGE),
  ];
  const path = points.map((point) => place(point).map((value) => value.toFixed(1)).join(",")).join(" L");
  const [endX = 0, endY = 0] = place(last);
  const label = `${name}: from ${format(first.y)} at iteration ${first.x} to ${format(last.y)} at iteration ${last.x}`;
  return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    s("path.chart-area", { d: `M${EDGE},${HEIGHT} L${path} L${endX},${HEIGHT} Z` }),
    s("path.chart-line", { d: `M${path}`, "vector-effect": "non-scaling-stroke" }),
    s("path.chart-end", { d: `M${endX},${endY} h0.01`, "vector-effect": "non-scaling-stroke" }));
}

/** @param {Point[]} points @returns {Point[]} At most `MOST_POINTS` of them, with the first and the last. */
function thinned(points) {
  if (points.length <= MOST_POINTS) return points;
  const step = (points.length - 1) / (MOST_POINTS - 1);
  return Array.from({ length: MOST_POINTS }, (_, index) => /** @type {Point} */ (points[Math.round(index * step)]));
}
