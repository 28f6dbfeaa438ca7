// @ts-check
/**
 * What all pages share. Each page module imports it.
 *
 *     host                                   the <main> to mount into;   setTitle("Run x")
 *     inbox                                  signal of {items: Wait[]} or null, kept fresh;   announce("…") for screen readers
 *     keys({ j: ["next card", fn] })         adds keys of the page, shown by `?`. Two keys in a row: "g x"
 *     failed(problem, retry)   empty(title, hint, ...more)   skeleton(rows)      the states of a page or panel
 *     view(resource, (data) => content)      loading, failed or the content, for a `resource` of api.js
 *     ask({title, body, action, danger})     a question before an act: a promise of true or false
 *     copy(text)                             a small copy button
 */
import { get, me } from "./api.js";
import { exact, now } from "./format.js";
import { kindLabel } from "./marks.js";
import { connection, isLeader, onEvent, subscribe } from "./stream.js";
import { effect, h, mount, signal } from "./ui.js";

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export const host = byId("page");
export const inbox = signal(/** @type {{items: any[]}|null} */ (null));
export const inboxProblem = signal(/** @type {any} */ (null));
const title = signal(document.title.replace(/ · orga$/, ""));

/** @param {string} text */
export const setTitle = (text) => void (title.value = text);

let clearing = 0;
/** @param {string} text */
export function announce(text) {
  byId("news").textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (byId("news").textContent = ""), 8000);
}

// The inbox, its number in the navigation, in the title and in the icon, and the notification that was asked for
/** @type {Set<string>|null} */ let seen = null;
/** @param {{items: any[]}} data */
function takeInbox(data) {
  const fresh = data.items.filter((wait) => seen && !seen.has(wait.id));
  seen = new Set(data.items.map((wait) => wait.id));
  inbox.value = data;
  if (!fresh.length) return;
  const text = fresh.length === 1 ? `${kindLabel(fresh[0].kind)}: ${fresh[0].tool ?? fresh[0].question ?? fresh[0].run}` : `${fresh.length} more wait for you`;
  announce(text);
  if (isLeader() && document.hidden && "Notification" in window && Notification.permission === "granted") new Notification("orga", { body: text, tag: "orga-inbox" });
}
export const reloadInbox = () => get("/inbox").then(takeInbox, (problem) => void (inboxProblem.value = problem));
onEvent("inbox", takeInbox);
onEvent("resync", ({ topics }) => topics.includes("inbox") && void reloadInbox());
subscribe(["inbox"]);
void reloadInbox();
effect(() => {
  const number = inbox.value?.items.length ?? 0;
  const badge = byId("inbox-number");
  badge.hidden = !number;
  badge.replaceChildren(String(number), h("span.unseen", " waiting"));
  document.title = `${number ? `(${number}) ` : ""}${title.value} · orga`;
  byId("icon").setAttribute("href", number ? "/icon.svg?waiting=1" : "/icon.svg");
});

// The visitor, and the connection
mount(byId("who"), () => [me.name, me.read_only ? h("span.tag", "read only") : null]);
mount(byId("connection"), () => h("span", { class: () => `dot ${connection.value.state}` }, () => (connection.value.state === "lost" ? "stale" : connection.value.state)));
effect(() => {
  const { state, since } = connection.value;
  byId("stale").hidden = state !== "lost" || now.value - since < 1500;
  document.body.classList.toggle("is-stale", state === "lost");
});
mount(byId("stale"), () => () =>
  connection.value.state === "lost"
    ? `${connection.value.why ? `The console refuses the stream of events: ${connection.value.why}. S` : "No connection to the console. S"}ince ${exact(connection.value.since)} this page shows what was then. It connects again by itself.`
    : null,
);

// Keys
/** @type {Map<string, [string, (event: KeyboardEvent) => void]>} */
const bound = new Map();
let prefix = "";
/** @param {Record<string, [string, (event: KeyboardEvent) => void]>} more */
export function keys(more) {
  for (const [key, entry] of Object.entries(more)) bound.set(key, entry);
}
/** @param {string} address */
const goTo = (address) => () => void (location.href = address);
keys({
  "?": ["show the keys", () => showKeys()],
  "/": ["search", () => /** @type {HTMLElement|null} */ (document.querySelector("input[type=search]"))?.focus()],
  "g r": ["go to the runs", goTo("/")],
  "g i": ["go to the inbox", goTo("/inbox")],
  "g s": ["go to the start page", goTo("/start")],
  "g a": ["go to the admin page", goTo("/admin")],
});
addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === "Escape" && target.matches("input, textarea, select")) target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input:not([type=checkbox]), textarea, select") || document.querySelector("dialog[open]")) return;
  const found = bound.get(`${prefix}${event.key}`);
  prefix = !prefix && event.key === "g" ? "g " : "";
  if (!found) return;
  event.preventDefault();
  found[1](event);
});
byId("keys").addEventListener("click", () => showKeys());

function showKeys() {
  const rows = [...bound].map(([key, [does]]) => h("tr", h("th", { scope: "row" }, key.split(" ").map((one) => h("kbd", one))), h("td", does)));
  dialog("Keys", [h("table.keys", h("tbody", rows))], (close) => [h("button", { type: "button", onclick: () => close() }, "Close")]);
}

/** @param {string} heading @param {import("./ui.js").Child[]} body @param {(close: () => void) => HTMLElement[]} buttons */
export function dialog(heading, body, buttons) {
  const box = h("dialog", { "aria-label": heading, onclose: () => box.remove() }, h("h2", heading), ...body);
  box.append(h("footer.row.end", ...buttons(() => box.close())));
  document.body.append(box);
  box.showModal();
  return box;
}

/** @param {{title: string, body?: import("./ui.js").Child, action: string, danger?: boolean}} question @returns {Promise<boolean>} */
export function ask({ title: heading, body, action, danger }) {
  return new Promise((resolve) => {
    const box = dialog(heading, [h("div.stack", body)], (close) => [
      h("button", { type: "button", onclick: close }, "Cancel"),
      h("button", { type: "button", class: danger ? "danger" : "primary", onclick: () => (resolve(true), close()) }, action),
    ]);
    box.addEventListener("close", () => resolve(false));
  });
}

// States of a page or panel
/** @param {import("./api.js").Problem} problem @param {() => void} [retry] */
export const failed = (problem, retry) =>
  h("section.state.failed", { role: "alert" }, h("h2", "This did not work"), h("p", problem.detail),
    problem.errors.some(({ detail }) => !problem.detail.includes(detail)) ? h("ul", problem.errors.map(({ where, detail }) => h("li", h("code", where), ` ${detail}`))) : null,
    retry ? h("button", { type: "button", onclick: retry }, "Try again") : null);

/** @param {string} heading @param {import("./ui.js").Child} hint @param {...import("./ui.js").Child} more */
export const empty = (heading, hint, ...more) => h("section.state", h("h2", heading), h("p", hint), ...more);

/** @param {number} rows */
export const skeleton = (rows) => h("div.skeleton", { "aria-hidden": "true" }, Array.from({ length: rows }, () => h("i")));

/** @param {{data: import("./ui.js").Signal<any>, problem: import("./ui.js").Signal<any>, reload: () => void}} source @param {(data: any) => import("./ui.js").Child} content @param {number} [rows] */
export const view = ({ data, problem, reload }, content, rows = 6) => () =>
  problem.value && !data.value ? failed(problem.value, reload) : data.value ? content(data.value) : skeleton(rows);

/** @param {string} text @param {string} [label] */
export function copy(text, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet small", onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  } }, label);
  return button;
}

/** @param {import("./ui.js").Child[]} content */
export function show(...content) {
  mount(host, () => content);
  host.removeAttribute("aria-busy");
}

