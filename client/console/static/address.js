// @ts-check
/**
 * The view of a page in its address, so that reload, back and a link give the same page.
 *
 *     address.get("tab")                    "" if it is absent. A part that reads it is kept current
 *     address.set({ tab: "plan" }, true)    "" or null removes a name; with `true`, Back returns to the previous view
 *     address.query                         signal of the whole query, with its question mark
 *     runPath("x")   pageId()               the path of a run, and the id that this page is about
 */
import { signal } from "./ui.js";

const query = signal(location.search);
addEventListener("popstate", () => (query.value = location.search));

export const address = {
  query,
  /** @param {string} name */
  get: (name) => new URLSearchParams(query.value).get(name) ?? "",
  /** @param {Record<string, string|null>} changes @param {boolean} [isStep] */
  set: (changes, isStep = false) => {
    const next = new URLSearchParams(query.peek());
    for (const [name, value] of Object.entries(changes)) value ? next.set(name, value) : next.delete(name);
    address.open(next.size ? `?${next}` : "", isStep);
  },
  /** @param {string} search @param {boolean} [isStep] */
  open: (search, isStep = true) => {
    if (search === query.peek()) return;
    history[isStep ? "pushState" : "replaceState"](null, "", search || location.pathname);
    query.value = search;
  },
};

/** @param {string} id @returns {`/runs/${string}`} */
export const runPath = (id) => `/runs/${encodeURIComponent(id)}`;

/** The id in the path of the page of a run or a chat. */
export const pageId = () => decodeURIComponent(location.pathname.split("/")[2] ?? "");
