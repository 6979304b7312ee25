/** Hits: their texts with highlights, and the contributions to their scores. */

import { call } from "./api.js";
import { asked, duration, h, plural, score } from "./dom.js";
import { failure } from "./failures.js";
import { bar } from "./plots.js";

const LONG = 500;
const LINES = 8;

const CODE = new Set(
  "bash c cc cjs cpp cs css go h hpp java js json jsonl jsx kt lua mjs php pl py pyi rb rs scala sh sql swift toml ts tsx yaml yml".split(
    " ",
  ),
);
const FENCED = /^(`{3,}|~{3,}).*\n[^]*?(?:^\1.*$|$(?![^]))/gm;

/** Create a list of hits, best first; `collection` is the default for hits without one. */
export function hitList(hits, collection) {
  return h("ol", { class: "hits" }, ...hits.map((hit) => item(hit, hit.collection ?? collection)));
}

/** Create the elements of a result of search-query: warnings, what was understood, hits, durations. */
export function queryResult(answer, collection) {
  const { degraded, understood = {} } = answer;
  const notices = (answer.warnings ?? []).map((text) => h("p", { class: "notice" }, text));
  if (degraded) {
    const where = degraded.collections ? ` in ${degraded.collections.join(", ")}` : "";
    const doubted = degraded.code === "index_incomplete";
    const how = doubted ? "Perhaps incomplete" : `Fallback to ${degraded.mode} search`;
    const text = `${how}${where}: ${degraded.reason}`;
    notices.unshift(h("p", { class: "notice" }, text, " ", h("code", {}, degraded.code)));
  }
  const taken = Object.entries(understood).map(([name, value]) => `${name} ${[value].flat().join(", ")}`);
  return [
    ...notices,
    taken.length ? h("p", { class: "small" }, `Understood: ${taken.join("; ")}`) : null,
    answer.results.length ? hitList(answer.results, collection) : h("p", {}, "No hits."),
    times(answer),
  ].filter(Boolean);
}

/** Create the line below the hits: the duration, and on request that of each step. */
function times({ results, timings: { total, ...steps } }) {
  const entry = ([step, took]) => `${step} ${duration(took)}`;
  const all = total === undefined ? "" : ` in ${duration(total)}`;
  const summary = h("summary", { class: "small" }, `${plural(results.length, "hit")}${all}`);
  return h("details", { class: "times small" }, summary, Object.entries(steps).map(entry).join(" · "));
}

function item(hit, collection) {
  const lines = hit.startLine ? `:${hit.startLine}` : hit.page ? `, page ${hit.page}` : "";
  const [text, ...more] = content(hit);
  const where = [hit.of ? `of ${hit.of}` : null, hit.breadcrumb, hit.collection].filter(Boolean).join(" · ");
  return h(
    "li",
    { class: "hit" },
    h(
      "p",
      { class: "head" },
      h("strong", { class: "score" }, score(hit.score)),
      " ",
      h("span", { class: "source" }, `${hit.source}${lines}`),
    ),
    where ? h("p", { class: "small" }, where) : null,
    text,
    contributions(hit),
    h(
      "p",
      { class: "buttons" },
      ...more,
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-label": `Similar to ${hit.source}${lines}`,
          on: { click: () => showSimilar(hit, collection) },
        },
        "Similar",
      ),
    ),
  );
}

function content(hit) {
  const text = h("div", { class: "text" }, ...faced(hit));
  if (hit.content.length <= LONG && hit.content.split("\n").length <= LINES) return [text];
  text.classList.add("clamped");
  const more = h("button", { type: "button", class: "quiet", "aria-expanded": "false" }, "Show all");
  more.addEventListener("click", () => {
    const open = !text.classList.toggle("clamped");
    more.setAttribute("aria-expanded", String(open));
    more.textContent = open ? "Show less" : "Show all";
  });
  return [text, more];
}

/** Return the content with highlights; code is set in the code face. */
function faced({ source, content: text, highlights = [] }) {
  const pieces = marked(text, highlights);
  const extension = source.split(".").pop().toLowerCase();
  if (CODE.has(extension)) return [h("code", {}, ...pieces(0, text.length))];
  const parts = [];
  let end = 0;
  for (const { index, 0: block } of text.matchAll(FENCED)) {
    parts.push(...pieces(end, index), h("code", {}, ...pieces(index, index + block.length)));
    end = index + block.length;
  }
  return [...parts, ...pieces(end, text.length)];
}

/**
 * Return a function that returns the text and mark elements between two offsets in UTF-16 units;
 * highlights count code points.
 */
function marked(text, highlights) {
  const units = [0];
  for (const point of text) units.push(units.at(-1) + point.length);
  const marks = highlights
    .map(({ start, end }) => [units[start], units[end]])
    .sort(([one], [other]) => one - other);
  return (from, to) => {
    const pieces = [];
    let at = from;
    for (const [start, end] of marks) {
      if (start < at || end > to) continue;
      pieces.push(text.slice(at, start), h("mark", {}, text.slice(start, end)));
      at = end;
    }
    return [...pieces, text.slice(at, to)];
  };
}

/** Create a row for each retriever and stage: the score before and after it. */
function contributions(hit) {
  const { fusion, ...stages } = hit.explain ?? {};
  const rows = [];
  let reached = 0;
  for (const [arm, part] of Object.entries(fusion?.arms ?? {})) {
    const raw = hit.scores?.[arm];
    const rank = part.rank ? `rank ${part.rank}` : "not found";
    const detail = raw === undefined ? rank : `${rank}, raw ${score(raw)}`;
    rows.push(row(arm, reached, reached + part.share, arm, detail));
    reached += part.share;
  }
  for (const [stage, change] of Object.entries(stages)) {
    if (typeof change?.before !== "number" || typeof change?.after !== "number") continue;
    if (change.before === change.after) continue;
    rows.push(row(stage, change.before, change.after, change.after < change.before ? "loss" : "gain"));
  }
  return rows.length ? h("dl", { class: "contributions" }, ...rows) : null;
}

function row(name, from, to, kind, detail = "") {
  const sign = to < from ? "\u2212" : "+";
  return h(
    "div",
    {},
    h("dt", {}, name),
    h(
      "dd",
      {},
      bar(from, to, 1, kind),
      h("span", {}, `${sign}${score(Math.abs(to - from))}`),
      h("span", { class: "small" }, detail),
    ),
  );
}

async function showSimilar(hit, collection) {
  const body = h("div", { role: "status" }, "Searching\u2026");
  showBroad(`Similar to ${hit.source}`, body);
  try {
    const found = await call("search-similar", { collection, chunkId: hit.chunkId, limit: 10 });
    const nothing = h("p", {}, "No other chunks.");
    body.replaceChildren(found.results.length ? hitList(found.results, collection) : nothing);
  } catch (error) {
    body.replaceChildren(failure(error));
  }
}

/** Show one hit with its whole text in a dialog. */
export function showHit(title, hit, collection) {
  const list = hitList([hit], collection);
  for (const text of list.querySelectorAll(".clamped")) text.classList.remove("clamped");
  for (const more of list.querySelectorAll("[aria-expanded]")) more.remove();
  showBroad(title, list);
}

function showBroad(title, body) {
  const close = h("button", { class: "quiet" }, "Close");
  const head = h("form", { method: "dialog" }, h("h2", {}, title), close);
  asked(h("dialog", { class: "broad", "aria-label": title }, head, body));
}
