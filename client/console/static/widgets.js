// @ts-check
/**
 * Parts that pages are made of. `more` are further attributes.
 *
 *     button("Stop", act, more)     chip("Graph", () => isOn, act, more)     chips("By state", ...content)
 *     facts([["cost", money(1)], …])          names and values; a row without a value is left out
 *     table("Tools", [["Tool", (one) => one.name], …], items)
 *     unfold("Result", () => content, more)   content that is made when it is first opened
 *     submits(act)                            attributes of a form
 *     plain(text)   asJson(value)   labelled("Model", input)   suggestions(id, () => names)   copy(text, label)
 *     failed(problem, retry)   empty(title, hint, ...more)   skeleton(rows)      the states of a page or panel
 *     view(resource, (data) => content)       loading, failed or the content, for a `resource` of api.js
 *     pageOf("Run", resource, (data) => …)    the same for a whole page, whose content is made once
 */
import { DASH } from "./format.js";
import { computed, h, mount, untracked } from "./ui.js";

/** @typedef {import("./ui.js").Child} Child */
/** @typedef {import("./ui.js").Attributes} Attributes */
/** @template D @typedef {import("./api.js").Resource<D>} Resource */

/** @param {Child} content @param {(event: MouseEvent) => void} onclick @param {Attributes} [more] */
export const button = (content, onclick, more = {}) => h("button", { type: "button", onclick, ...more }, content);

/** @param {Child} content @param {() => boolean} isOn @param {() => void} onclick @param {Attributes} [more] */
export const chip = (content, isOn, onclick, more = {}) =>
  h("button.chip", { type: "button", onclick, "aria-pressed": () => String(isOn()), ...more }, content);

/** @param {string} label @param {...Child} content */
export const chips = (label, ...content) => h("div.chips", { role: "group", "aria-label": label }, content);

/** @param {[name: Child, value: Child][]} rows @param {Attributes} [more] */
export const facts = (rows, more = {}) =>
  h("dl.facts", more, rows.map(([name, value]) =>
    value === null || value === undefined || value === "" ? null : [h("dt", name), h("dd", value)]));

/**
 * @template T @param {string} label @param {[name: Child, cell: (item: T) => Child, kind?: string][]} columns
 * @param {readonly T[]} items @param {Attributes} [more]
 */
export const table = (label, columns, items, more = {}) =>
  h("div.scroll.card.flush", { tabindex: 0, role: "region", "aria-label": label },
    h("table", more,
      h("thead", h("tr", columns.map(([name, , kind]) => h("th", { class: kind }, name)))),
      h("tbody", items.map((item) =>
        h("tr", columns.map(([, cell, kind]) => h("td", { class: kind }, cell(item) ?? DASH)))))));

/** @param {Child} summary @param {() => Child} content @param {Attributes} [more] */
export function unfold(summary, content, more = {}) {
  const body = h("div");
  const fill = () => body.firstChild || mount(body, content);
  if (more.open) fill();
  const made = h("details", more, h("summary", summary), body);
  made.addEventListener("toggle", fill);
  return made;
}

/** Attributes of a form that calls `act` instead of sending a request. @param {() => void} act */
export const submits = (act) => ({ onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), act()) });

/** @param {Child} text */
export const plain = (text) => h("pre", { tabindex: 0 }, text);

/** @param {unknown} value */
export const asJson = (value) => plain(typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** @param {Child} label @param {Child} input */
export const labelled = (label, input) => h("label.stack", label, input);

/** @param {string} id @param {() => string[]} names */
export const suggestions = (id, names) => h("datalist", { id }, () => names().map((value) => h("option", { value })));

/** @param {string} text @param {string} [label] */
export function copy(text, label = "Copy") {
  const made = button(label, async () => {
    await navigator.clipboard.writeText(text);
    made.textContent = "Copied";
    setTimeout(() => (made.textContent = label), 1500);
  }, { class: "quiet small" });
  return made;
}

/** The problems of keys. @param {import("./api.js").Problem["errors"]} errors */
export const errorList = (errors) =>
  h("ul", errors.map(({ where, detail }) => h("li", h("code", where), ` ${detail}`)));

/** @param {import("./api.js").Problem} problem @param {() => void} [retry] */
export const failed = (problem, retry) =>
  h("section.state.failed", { role: "alert" }, h("h2", "This did not work"), h("p", problem.detail),
    problem.errors.some(({ detail }) => !problem.detail.includes(detail)) ? errorList(problem.errors) : null,
    retry ? button("Try again", retry) : null);

/** @param {string} heading @param {Child} hint @param {...Child} more */
export const empty = (heading, hint, ...more) => h("section.state", h("h2", heading), h("p", hint), more);

/** @param {number} rows */
export const skeleton = (rows) =>
  h("div.skeleton", { "aria-hidden": "true" }, Array.from({ length: rows }, () => h("i")));

/** @template D @param {Resource<D>} source @param {(data: D) => Child} content @param {number} [rows] */
export const view = ({ data, problem, reload }, content, rows = 6) => () =>
  data.value !== null ? content(data.value) : problem.value ? failed(problem.value, reload) : skeleton(rows);

/** @template D @param {string} heading @param {Resource<D>} source @param {(data: D) => Child} content */
export function pageOf(heading, source, content) {
  const isKnown = computed(() => source.data.value !== null);
  return () => isKnown.value ? untracked(() => content(/** @type {D} */ (source.data.peek())))
    : h("div.stack.page-lost", h("h1", heading), view(source, () => null, 8));
}
