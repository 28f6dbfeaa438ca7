// @ts-check
/**
 * Markdown of models and tools as elements. The server makes a tree (`POST /api/v1/markdown`), and the page shows it.
 *
 *     markdown(() => text)     an element that follows the text. Until the tree is here it shows the plain text.
 */
import { post } from "./api.js";
import { effect, h, signal } from "./ui.js";

/** @typedef {{kind: string, children: Node_[], start?: number, href?: string, language?: string}} Element_ */
/** @typedef {string|Element_} Node_ */

/** The elements that a text may become. Any other is a span. */
const PLAIN = new Set("p ul li blockquote code em strong s br hr table thead tbody tr th td".split(" "));

/** @param {Node_[]} tree @returns {(HTMLElement|string)[]} */
const elements = (tree) => tree.map(element);

/** @param {Node_} node @returns {HTMLElement|string} */
function element(node) {
  if (typeof node === "string") return node;
  const { kind, start, href = "", language } = node;
  const children = elements(node.children);
  if (kind === "a") return link(href, children);
  if (kind === "ol") return h("ol", { start }, children);
  if (kind === "pre") return h("pre", { "data-language": language || null, tabindex: 0 }, h("code", children));
  const heading = /^h([1-6])$/.exec(kind);
  if (heading) return h(`h${Math.min(6, Number(heading[1]) + 2)}`, children); // the page has the first two levels
  return h(PLAIN.has(kind) ? kind : "span", children);
}

/** A link that shows its whole address. @param {string} href @param {(HTMLElement|string)[]} children */
function link(href, children) {
  const anchor = h("a", { href, rel: "noopener noreferrer", target: "_blank" }, children);
  return anchor.textContent === href ? anchor : h("span", anchor, h("span.address", ` (${href})`));
}

/** @type {Map<string, Node_[]>} */
const known = new Map();
/** @type {Map<string, ((tree: Node_[]) => void)[]>} */
const wanted = new Map();

/** Ask for all texts that are wanted now, in one request. */
async function fetchTrees() {
  const asked = [...wanted.entries()].slice(0, 50);
  if (wanted.size > 50) setTimeout(() => void fetchTrees(), 0);
  for (const [text] of asked) wanted.delete(text);
  if (!asked.length) return;
  try {
    const { trees } = await post("/markdown", { texts: asked.map(([text]) => text) });
    asked.forEach(([text, takers], at) => {
      known.set(text, trees[at]);
      for (const take of takers) take(trees[at]);
    });
    for (const text of known.keys()) if (known.size > 500) known.delete(text);
  } catch {
    // the plain text stays
  }
}

/** @param {string} text @param {(tree: Node_[]) => void} take */
function treeOf(text, take) {
  const tree = known.get(text);
  if (tree) return take(tree);
  if (!wanted.size) setTimeout(() => void fetchTrees(), 0);
  wanted.set(text, [...(wanted.get(text) ?? []), take]);
}

/** @param {() => string} text */
export function markdown(text) {
  const tree = signal(/** @type {Node_[]|null} */ (null));
  const shown = signal("");
  effect(() => {
    const asked = text();
    shown.value = asked;
    treeOf(asked, (found) => shown.peek() === asked && (tree.value = found));
  });
  return h("div.prose", () => (tree.value ? elements(tree.value) : h("p.plain", shown)));
}
