/** The search view: one query in one mode, or in all three side by side. The address keeps it. */

import { call } from "./api.js";
import { byId, duration, h, plural } from "./dom.js";
import { failure } from "./failures.js";
import { hitList } from "./hit.js";

const MODES = ["hybrid", "semantic", "keyword"];
const FIELDS = { q: "query", in: "collection", limit: "limit", mode: "mode" };
let running = null;
let failed = false;
let searched = "";

/** Set up the form. */
export function start() {
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const state = new URLSearchParams(Object.entries(FIELDS).map(([key, id]) => [key, byId(id).value]));
    searched = "";
    if (location.hash === `#search?${state}`) show(state);
    else location.hash = `#search?${state}`;
  });
}

/** Show a state from the address; a query that is not shown yet is run. */
export function show(state) {
  const collection = state.get("in");
  if (collection && collection !== "*") choose([collection], { keep: true });
  for (const [key, id] of Object.entries(FIELDS)) if (state.has(key)) byId(id).value = state.get(key);
  if (!state.get("q") || searched === String(state)) return;
  searched = String(state);
  search();
}

/** Repeat the last search if it failed. */
export function retry() {
  if (failed) search();
}

/** Return the address of the search form for a collection. */
export const searchAddress = (collection) => `#search?${new URLSearchParams({ in: collection })}`;

/** Set the collections to choose from; without any, offer to index something. */
export function choose(names, { keep = false } = {}) {
  const select = byId("collection");
  const chosen = select.value;
  const known = keep ? [...select.options].slice(1).map((option) => option.value) : [];
  const offered = [...new Set([...known, ...names])].sort();
  const options = offered.map((name) => h("option", { value: name }, name));
  select.replaceChildren(select.options[0], ...options);
  select.value = offered.includes(chosen) ? chosen : "*";
  if (!keep) byId("nothing").hidden = names.length > 0;
}

async function search() {
  running?.abort();
  const own = (running = new AbortController());
  const input = {
    collection: byId("collection").value || "*",
    query: byId("query").value,
    limit: Number(byId("limit").value) || 10,
    explain: true,
    highlights: true,
  };
  const mode = byId("mode").value;
  const modes = mode === "all" ? MODES : [mode || MODES[0]];
  const columns = modes.map((each) => column(each));
  byId("columns").replaceChildren(...columns.map(({ element }) => element));
  byId("search-summary").textContent = "Searching\u2026";
  const counts = await Promise.all(columns.map((each) => fill(each, input, own.signal)));
  if (own.signal.aborted) return;
  failed = counts.includes(null);
  const told = counts.map((found, index) => `${modes[index]} ${found ?? "failed"}`);
  byId("search-summary").textContent = `Hits: ${told.join(", ")}`;
}

function column(mode) {
  const body = h("div", {}, h("p", { class: "small" }, "Searching\u2026"));
  const id = `mode-${mode}`;
  const element = h(
    "section",
    { class: "column", "aria-labelledby": id, "aria-busy": "true" },
    h("h3", { id }, mode),
    body,
  );
  return { mode, element, body };
}

async function fill({ mode, element, body }, input, signal) {
  try {
    const answer = await call("search-query", { ...input, mode }, { signal });
    body.replaceChildren(...shown(answer, input.collection));
    return answer.results.length;
  } catch (error) {
    if (error.name !== "AbortError") body.replaceChildren(failure(error));
    return null;
  } finally {
    element.removeAttribute("aria-busy");
  }
}

function shown(answer, collection) {
  const { degraded, understood = {} } = answer;
  const notices = (answer.warnings ?? []).map((text) => h("p", { class: "notice" }, text));
  if (degraded) {
    const text = `Fallback to ${degraded.mode} search: ${degraded.reason}`;
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
