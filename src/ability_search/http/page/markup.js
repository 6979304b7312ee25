/** Converts HTML to Markdown; headings, lists and code are kept. */

const SILENT = new Set(["FORM", "HEAD", "IFRAME", "NAV", "NOSCRIPT", "SCRIPT", "STYLE", "TEMPLATE"]);
const BLOCKS = new Set([
  ..."ADDRESS ARTICLE ASIDE BLOCKQUOTE BODY DD DETAILS DIV DL DT FIGCAPTION FIGURE FOOTER".split(" "),
  ..."HEADER HR LI MAIN OL P SECTION SUMMARY TABLE TD TH TR UL".split(" "),
]);

/** Return the title, if any, and the text; no script is run and nothing is loaded. */
export function fromHtml(text) {
  const parsed = new DOMParser().parseFromString(text, "text/html");
  const content = written(parsed.body).replace(/[ \t]+\n/g, "\n").replace(/\n{3,}/g, "\n\n").trim();
  return { title: parsed.title.trim(), content };
}

function written(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.data.replace(/\s+/g, " ");
  if (node.nodeType !== Node.ELEMENT_NODE || SILENT.has(node.tagName)) return "";
  const { tagName } = node;
  if (tagName === "BR") return "\n";
  if (tagName === "PRE") return `\n\n\`\`\`\n${node.textContent.replace(/\n$/, "")}\n\`\`\`\n\n`;
  const inner = [...node.childNodes].map(written).join("");
  if (/^H[1-6]$/.test(tagName)) return `\n\n${"#".repeat(tagName[1])} ${inner.trim()}\n\n`;
  if (tagName === "LI") return `\n- ${inner.trim()}`;
  if (tagName === "TR") return `\n${inner.trim().replace(/\s*\n+\s*/g, " | ")}`;
  return BLOCKS.has(tagName) ? `\n\n${inner.trim()}\n\n` : inner;
}
