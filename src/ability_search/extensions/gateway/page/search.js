/** The search view: a query in one mode or in all three side by side, or a question. The address keeps it. */

import { answer } from "./answer.js";
import { call } from "./api.js";
import { byId, h } from "./dom.js";
import { failure } from "./failures.js";
import { queryResult } from "./hit.js";

const MODES = ["hybrid", "semantic", "keyword"];
const FIELDS = { q: "query", in: "collection", limit: "limit", mode: "mode" };
let running = null;
let failed = false;
let searched = "";
let asks = false;

/** Set up the form. */
export function start() {
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const state = new URLSearchParams(Object.entries(FIELDS).map(([key, id]) => [key, byId(id).value]));
    if (event.submitter === byId("ask")) state.set("ask", "1");
    searched = "";
    if (location.hash === `#search?${state}`) show(state);
    else location.hash = `#search?${state}`;
  });
  byId("stop").addEventListener("click", () => {
    running.abort();
    byId("query").focus();
  });
}

/** Show a state from the address; a query that is not shown yet is run. */
export function show(state) {
  const collection = state.get("in");
  if (collection && collection !== "*") choose([collection], { keep: true });
  for (const [key, id] of Object.entries(FIELDS)) if (state.has(key)) set(byId(id), state.get(key));
  if (!state.get("q") || searched === String(state)) return;
  searched = String(state);
  asks = state.has("ask");
  search();
}

/** Set a field; a list keeps its value if it does not offer the new one. */
function set(field, value) {
  const before = field.value;
  field.value = value;
  if (field.selectedIndex === -1) field.value = before;
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
  const mode = byId("mode").value || MODES[0];
  const modes = mode === "all" ? (asks ? MODES.slice(0, 1) : MODES) : [mode];
  const columns = asks ? [column("answer", modes[0])] : modes.map((each) => column(each, each));
  byId("columns").replaceChildren(...columns.map(({ element }) => element));
  byId("search-summary").textContent = asks ? "Answering\u2026" : "Searching\u2026";
  byId("stop").hidden = !asks;
  const told = await Promise.all(columns.map((each) => fill(each, input, own.signal)));
  if (running !== own) return;
  byId("stop").hidden = true;
  failed = told.includes(null) && !own.signal.aborted;
  byId("search-summary").textContent = own.signal.aborted ? "Stopped." : summary(columns, told);
}

function summary(columns, told) {
  if (asks) return told[0] ?? "Failed.";
  return `Hits: ${told.map((found, place) => `${columns[place].name} ${found ?? "failed"}`).join(", ")}`;
}

function column(name, mode) {
  const body = h("div");
  const id = `mode-${name}`;
  const element = h(
    "section",
    { class: "column", "aria-labelledby": id, "aria-busy": "true" },
    h("h3", { id }, name),
    body,
  );
  return { name, mode, element, body };
}

async function fill({ mode, element, body }, input, signal) {
  const asked = { ...input, mode };
  try {
    if (asks) return await answer(asked, body, signal);
    const found = await call("search-query", asked, { signal });
    body.replaceChildren(...queryResult(found, input.collection));
    return found.results.length;
  } catch (error) {
    if (error.name !== "AbortError") body.prepend(failure(error));
    return null;
  } finally {
    element.removeAttribute("aria-busy");
  }
}
