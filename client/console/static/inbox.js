// @ts-check
/** The inbox: all that waits for a person, oldest first. The address holds the filter: `#kind=approval&queue=ops`. */
import { empty, failed, inbox, inboxProblem, reloadInbox, setTitle, show, skeleton } from "./shell.js";
import { kindLabel } from "./marks.js";
import { computed, h, signal } from "./ui.js";
import { waitKeys, waitList } from "./waits.js";

const filter = signal(new URLSearchParams(location.hash.slice(1)));
addEventListener("hashchange", () => (filter.value = new URLSearchParams(location.hash.slice(1))));

/** @param {string} name @param {string} value */
function choose(name, value) {
  const next = new URLSearchParams(filter.peek());
  if (value && next.get(name) !== value) next.set(name, value);
  else next.delete(name);
  history.replaceState(null, "", `#${next}`);
  filter.value = next;
}

/** @param {string} name @param {(value: string) => string} label */
const chips = (name, label) => () => {
  const values = [...new Set((inbox.value?.items ?? []).map((wait) => wait[name]).filter(Boolean))].sort();
  if (values.length < 2 && !filter.value.get(name)) return null;
  return h("div.chips", { role: "group", "aria-label": `By ${name}` }, values.map((value) => {
    const number = (inbox.value?.items ?? []).filter((wait) => wait[name] === value).length;
    return h("button", { type: "button", class: "chip", "aria-pressed": String(filter.value.get(name) === value), onclick: () => choose(name, value) }, label(value), " ", h("b", number));
  }));
};

const shown = computed(() => (inbox.value?.items ?? []).filter((wait) => ["kind", "queue"].every((name) => !filter.value.get(name) || wait[name] === filter.value.get(name))));
/** A notification is offered, and asked for only by this button. */
const notify = () => {
  if (!("Notification" in window) || Notification.permission !== "default") return null;
  const button = h("button", { type: "button", class: "quiet small", onclick: () => Notification.requestPermission().then(() => button.remove()) }, "Notify me");
  return button;
};

setTitle("Inbox");
waitKeys();
show(
  h("div.page-head", h("h1", "Inbox"), chips("kind", kindLabel), chips("queue", (queue) => `queue ${queue}`),
    h("span.row.end.soft.small.hints", h("kbd", "j"), h("kbd", "k"), "move", h("kbd", "a"), "approve", h("kbd", "d"), "deny"), notify),
  () => (inboxProblem.value && !inbox.value ? failed(inboxProblem.value, reloadInbox) : inbox.value ? null : skeleton(4)),
  () => (inbox.value && !shown.value.length ? empty("Nothing waits for you", "Approvals, questions, escalations and used up budgets of all runs come here by themselves.", h("a.button", { href: "/start" }, "Start a run")) : null),
  waitList(() => shown.value, { showRun: true }),
);
