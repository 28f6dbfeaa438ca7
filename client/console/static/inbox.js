// @ts-check
/** The inbox: all that waits for a person, oldest first. The address holds the filter: `?kind=approval&queue=ops`. */
import { address } from "./address.js";
import { kindLabel } from "./marks.js";
import { inbox, setTitle, show } from "./shell.js";
import { h } from "./ui.js";
import { waitKeys, waitList } from "./waits.js";
import { button, chip, chips, empty, view } from "./widgets.js";

const items = () => inbox.data.value?.items ?? [];
const fits = (/** @type {string|null} */ has, /** @type {string} */ chosen) => !chosen || has === chosen;
const shown = () => items().filter(({ kind, queue }) =>
  fits(kind, address.get("kind")) && fits(queue, address.get("queue")));

/** @param {"kind"|"queue"} name @param {(value: string) => string} label */
const filter = (name, label) => () => {
  const values = [...new Set(items().map((wait) => wait[name] ?? ""))].filter(Boolean).sort();
  const isChosen = (/** @type {string} */ value) => address.get(name) === value;
  if (values.length < 2 && !address.get(name)) return null;
  return chips(`By ${name}`, values.map((value) =>
    chip([label(value), " ", h("b", items().filter((wait) => wait[name] === value).length)], () => isChosen(value),
      () => address.set({ [name]: isChosen(value) ? "" : value }))));
};

/** The button that offers notifications. Only a click on it asks for the permission. */
const notify = () => {
  if (!("Notification" in window) || Notification.permission !== "default") return null;
  const made = button("Notify me", () => Notification.requestPermission().then(() => made.remove()),
    { class: "quiet small" });
  return made;
};

setTitle("Inbox");
waitKeys();
show(
  h("div.page-head", h("h1", "Inbox"), filter("kind", kindLabel), filter("queue", (queue) => `queue ${queue}`),
    h("span.row.end.soft.small.hints", h("kbd", "j"), h("kbd", "k"), "move", h("kbd", "a"), "approve", h("kbd", "d"),
      "deny"),
    notify),
  view(inbox, () => shown().length ? null
    : empty("Nothing waits for you", "Approvals, questions, escalations and used up budgets of all runs appear here.",
      h("a.button", { href: "/start" }, "Start a run")), 4),
  waitList(shown, { showRun: true }),
);
