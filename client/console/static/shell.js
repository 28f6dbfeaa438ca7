// @ts-check
/**
 * The parts that all pages share. Each page module imports this file.
 *
 *     show(...content)                       fills the page;   setTitle("Run x")
 *     inbox                                  resource of what waits, kept fresh;   announce("…") for screen readers
 *     keys({ j: ["next card", fn] })         adds keys of the page, shown by `?`. Two keys in a row: "g x"
 *     moveFocus(elements, step)              moves the focus to the next or the previous element
 *     dialog({title, body, action, act})     `act` returns false to keep it open
 *     ask({title, body, action, danger})     a question before an act: a promise of true or false
 */
import { me, resource } from "./api.js";
import { exact, now } from "./format.js";
import { kindLabel } from "./marks.js";
import { connection, isLeader, onEvent, subscribe } from "./stream.js";
import { effect, h, mount, signal } from "./ui.js";
import { button, submits } from "./widgets.js";

/** @typedef {import("./ui.js").Child} Child */
/** @typedef {{title: string, body: Child, action?: string, danger?: boolean, act?: () => any}} Question */

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const title = signal(document.title.replace(/ · orga$/, ""));

/** @param {string} text */
export const setTitle = (text) => void (title.value = text);

/** @param {...Child} content */
export function show(...content) {
  mount(byId("page"), () => content);
  byId("page").removeAttribute("aria-busy");
}

let clearing = 0;
/** @param {string} text */
export function announce(text) {
  byId("news").textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (byId("news").textContent = ""), 8000);
}

// The inbox, its number in the navigation, in the title and in the icon, and the notification that was asked for
export const inbox = resource("/inbox");
onEvent("inbox", (data) => void (inbox.data.value = data));
onEvent("resync", ({ topics }) => topics.includes("inbox") && void inbox.reload());
subscribe(["inbox"]);
/** @type {Set<string>|null} */ let seen = null;
effect(() => {
  const items = inbox.data.value?.items;
  const [first, ...others] = items?.filter((wait) => seen && !seen.has(wait.id)) ?? [];
  if (items) seen = new Set(items.map((wait) => wait.id));
  if (!first) return;
  const text = others.length ? `${others.length + 1} more wait for you`
    : `${kindLabel(first.kind)}: ${first.tool ?? first.question ?? first.run}`;
  announce(text);
  if (isLeader() && document.hidden && "Notification" in window && Notification.permission === "granted")
    new Notification("orga", { body: text, tag: "orga-inbox" });
});
effect(() => {
  const number = inbox.data.value?.items.length ?? 0;
  const badge = byId("inbox-number");
  badge.hidden = !number;
  badge.replaceChildren(String(number), h("span.unseen", " waiting"));
  document.title = `${number ? `(${number}) ` : ""}${title.value} · orga`;
  byId("icon").setAttribute("href", number ? "/icon.svg?waiting=1" : "/icon.svg");
});

// The visitor, and the connection
mount(byId("who"), () => [me.name, me.read_only ? h("span.tag", "read only") : null]);
mount(byId("connection"), () =>
  h("span.dot", { class: () => connection.value.state },
    () => (connection.value.state === "lost" ? "stale" : connection.value.state)));
effect(() => {
  const { state, since } = connection.value;
  byId("stale").hidden = state !== "lost" || now.value - since < 1500;
  document.body.classList.toggle("is-stale", state === "lost");
});
mount(byId("stale"), () => () => {
  const { state, since, why } = connection.value;
  const cause = why ? `The console refuses the stream of events: ${why}` : "No connection to the console";
  return state === "lost" ? `${cause}. The page shows its state of ${exact(since)}. It reconnects by itself.` : null;
});

// Keys
/** @type {Map<string, [string, (event: KeyboardEvent) => void]>} */
const bound = new Map();
let prefix = "";
/** @param {Record<string, [string, (event: KeyboardEvent) => void]>} more */
export function keys(more) {
  for (const [key, entry] of Object.entries(more)) bound.set(key, entry);
}
/** @param {string} path */
const goTo = (path) => () => void (location.href = path);
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
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("input:not([type=checkbox]), textarea, select") || document.querySelector("dialog[open]")) return;
  const found = bound.get(`${prefix}${event.key}`);
  prefix = !prefix && event.key === "g" ? "g " : "";
  if (!found) return;
  event.preventDefault();
  found[1](event);
});
byId("keys").addEventListener("click", () => showKeys());

function showKeys() {
  const row = (/** @type {string} */ key, /** @type {string} */ does) =>
    h("tr", h("th", { scope: "row" }, key.split(" ").map((one) => h("kbd", one))), h("td", does));
  dialog({ title: "Keys", body: h("table.keys", h("tbody", [...bound].map(([key, [does]]) => row(key, does)))) });
}

/** @param {Iterable<Element>} elements @param {number} step @param {string} [within] The part that gets the focus. */
export function moveFocus(elements, step, within) {
  const all = [...elements];
  const at = all.findIndex((one) => one.contains(document.activeElement));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  /** @type {HTMLElement|null|undefined} */ (within ? next?.querySelector(within) : next)?.focus();
}

/** @param {Question} question */
export function dialog({ title: heading, body, action, danger, act }) {
  const submit = async () => (await act?.()) !== false && box.close();
  const form = h("form.stack", submits(submit), h("h2", heading), body,
    h("footer.row.end", button(action ? "Cancel" : "Close", () => box.close()),
      action ? h("button", { class: danger ? "danger" : "primary" }, action) : null));
  const onkeydown = (/** @type {KeyboardEvent} */ event) =>
    event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.requestSubmit();
  const box = h("dialog", { "aria-label": heading, onclose: () => box.remove(), onkeydown }, form);
  document.body.append(box);
  box.showModal();
  return box;
}

/** @param {Question} question @returns {Promise<boolean>} */
export const ask = (question) =>
  new Promise((resolve) => {
    const box = dialog({ ...question, act: () => resolve(true) });
    box.addEventListener("close", () => resolve(false));
  });
