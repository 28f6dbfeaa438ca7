// @ts-check
/**
 * Numbers, times and texts as people read them.
 *
 *     count(1234567) "1.23M"   money(0.0123) "$0.0123"   bytes(2048) "2.0 kB"   duration(75) "1 min 15 s"
 *     time(iso)                <time> with the age, live; the exact time on hover and focus
 *     elapsed(from, to|null)   the duration between two times; live while `to` is null
 *     took(from, to)           the same as a text; "" if one of them is absent
 *     words("max_cost")        "max cost"        capital("max_cost")   "Max cost"
 *     parse(json)              {value, problem}
 * An absent value is shown as a dash.
 */
import { h, signal } from "./ui.js";

export const DASH = "–";

/** @param {string|null|undefined} name */
export const words = (name) => (name ? name.replaceAll("_", " ") : DASH);

/** "max_cost" as "Max cost". @param {string|null|undefined} name */
export const capital = (name) => words(name).replace(/^./, (first) => first.toUpperCase());

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** @param {number|null|undefined} n */
export function count(n) {
  if (n === null || n === undefined) return DASH;
  return Math.abs(n) >= 10_000 ? COMPACT.format(n) : Number.isInteger(n) ? String(n) : n.toFixed(2);
}

/** @param {number|null|undefined} usd */
export function money(usd) {
  if (usd === null || usd === undefined) return DASH;
  const digits = usd === 0 || usd >= 1 ? 2 : usd >= 0.1 ? 3 : 4;
  return `$${usd.toFixed(digits)}`;
}

/** @param {number|null|undefined} n */
export function bytes(n) {
  if (n === null || n === undefined) return DASH;
  return n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

/** @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return DASH;
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const parts = /** @type {[number, string][]} */ ([
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ]);
  const first = Math.max(0, parts.findIndex(([n]) => n > 0));
  return parts.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`).join(" ") || "0 s";
}

/** Read JSON. An empty text has no value. @param {string} text @returns {{value: any, problem: string}} */
export function parse(text) {
  if (!text.trim()) return { value: undefined, problem: "" };
  try {
    return { value: JSON.parse(text), problem: "" };
  } catch (error) {
    return { value: undefined, problem: `this is no JSON: ${/** @type {Error} */ (error).message}` };
  }
}

/** The present time, for ages and running durations. It changes once a second while the page is visible. */
export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 1000);

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** @param {string|number} at */
export const exact = (at) => EXACT.format(new Date(at));

/** A duration in its largest unit, rounded. @param {number} seconds At least 60. */
function rounded(seconds) {
  const [minutes, hours] = [Math.round(seconds / 60), Math.round(seconds / 3600)];
  return minutes < 60 ? `${minutes} min` : hours < 24 ? `${hours} h` : `${Math.round(seconds / 86400)} d`;
}

/** @param {string|null|undefined} at  @param {number} [present] */
export function age(at, present = Date.now()) {
  if (!at) return DASH;
  const seconds = (present - Date.parse(at)) / 1000;
  if (Math.abs(seconds) < 5) return "now";
  const size = Math.round(Math.abs(seconds));
  const text = size < 60 ? `${size} s` : rounded(size);
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** @param {string|null|undefined} at */
export function time(at) {
  if (!at) return h("span.faint", DASH);
  return h("time", { datetime: at, "data-exact": exact(at), title: exact(at) }, () => age(at, now.value));
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });

/** The time of the day. @param {string|null} at */
export const clock = (at) => (at ? h("time", { datetime: at, title: exact(at) }, CLOCK.format(new Date(at))) : null);

/** @param {string|null} from @param {string|null} to */
export const took = (from, to) => (from && to ? duration((Date.parse(to) - Date.parse(from)) / 1000) : "");

/** @param {string|null} from @param {string|null} to */
export function elapsed(from, to) {
  if (!from) return h("span.faint", DASH);
  const seconds = () => Math.max(1, Math.round((now.value - Date.parse(from)) / 1000));
  return h("span.figure", { title: exact(from) }, to ? took(from, to) : () => duration(seconds()));
}
