// @ts-check
/**
 * Markdown of models and tools as elements. The server makes the tree (`POST /api/v1/markdown`), the page the elements.
 *
 *     markdown(() => text)     an element that follows the text. Until the tree is here it shows the plain text.
 *     elements(tree)           the elements of a tree that is known already
 */
import { post } from "./api.js";
import { effect, h, signal } from "./ui.js";

/**
 * @typedef {string|{kind: string, children: Node_[], level?: number, start?: number, href?: string, language?: string}}
 *   Node_
 */

/** @type {Record<string, keyof HTMLElementTagNameMap>} */
const TAGS = {
  paragraph: "p",
  bullets: "ul",
  numbers: "ol",
  item: "li",
  quote: "blockquote",
  code: "code",
  emphasis: "em",
  strong: "strong",
  strike: "s",
  break: "br",
  rule: "hr",
  table: "table",
  head: "thead",
  body: "tbody",
  row: "tr",
  title: "th",
  cell: "td",
};

/** @param {Node_[]} tree @returns {(HTMLElement|string)[]} */
export const elements = (tree) => tree.map(element);

/** @param {Node_} node @returns {HTMLElement|string} */
function element(node) {
  if (typeof node === "string") return node;
  const children = node.children.map(element);
  if (node.kind === "heading")
    return h(/** @type {"h3"} */ (`h${Math.min(6, (node.level ?? 1) + 2)}`), {}, ...children);
  if (node.kind === "block")
    return h("pre", { "data-language": node.language || null, tabindex: 0 }, h("code", ...children));
  if (node.kind === "numbers") return h("ol", { start: node.start }, ...children);
  if (node.kind === "link") return link(node.href ?? "", children);
  const tag = TAGS[node.kind];
  return tag ? h(tag, {}, ...children) : h("span", ...children);
}

/** A link with its whole address in sight. @param {string} href @param {(HTMLElement|string)[]} children */
function link(href, children) {
  const anchor = h("a", { href, rel: "noopener noreferrer", target: "_blank" }, ...children);
  return anchor.textContent === href ? anchor : h("span", anchor, h("span.address", ` (${href})`));
}

/** @type {Map<string, Node_[]>} */
const known = new Map();
/** @type {Map<string, ((tree: Node_[]) => void)[]>} */
const wanted = new Map();

/** Ask for all texts of this moment at once. */
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
