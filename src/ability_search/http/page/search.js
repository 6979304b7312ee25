/** The search view: one query in the three modes, side by side. */

import { call } from "./api.js";
import { byId, duration, h, plural } from "./dom.js";
import { failure } from "./failures.js";
import { hitList } from "./hit.js";

const MODES = ["hybrid", "semantic", "keyword"];
let running = null;
let failed = false;

/** Set up the form. */
export function start() {
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
}

/** Repeat the last search if it failed. */
export function retry() {
  if (failed) search();
}

/** Select a collection and go to the search form. */
export function searchIn(name) {
  choose([name], { keep: true });
  byId("collection").value = name;
  location.hash = "#search";
}

/** Set the collections to choose from. */
export function choose(names, { keep = false } = {}) {
  const select = byId("collection");
  const chosen = select.value;
  const known = keep ? [...select.options].slice(1).map((option) => option.value) : [];
  const offered = [...new Set([...known, ...names])].sort();
  const options = offered.map((name) => h("option", { value: name }, name));
  select.replaceChildren(select.options[0], ...options);
  select.value = offered.includes(chosen) ? chosen : "*";
}

async function search() {
  running?.abort();
  const own = (running = new AbortController());
  const query = byId("query").value;
  const input = {
    collection: byId("collection").value,
    query,
    limit: Number(byId("limit").value),
    explain: true,
    highlights: true,
  };
  const columns = MODES.map((mode) => column(mode));
  byId("columns").replaceChildren(...columns.map(({ element }) => element));
  byId("search-summary").textContent = "Searching\u2026";
  const counts = await Promise.all(columns.map((each) => fill(each, input, own.signal)));
  if (own.signal.aborted) return;
  failed = counts.includes(null);
  const told = counts.map((found, index) => `${MODES[index]} ${found ?? "failed"}`);
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
  const { total, ...steps } = answer.timings;
  const times = Object.entries(steps).map(([step, took]) => `${step} ${duration(took)}`);
  const head = [plural(answer.results.length, "hit"), ...(total === undefined ? [] : [duration(total)])];
  return [
    ...notices,
    h("p", { class: "small" }, head.join(" in ")),
    times.length ? h("p", { class: "small" }, times.join(" · ")) : null,
    taken.length ? h("p", { class: "small" }, `Understood: ${taken.join("; ")}`) : null,
    answer.results.length ? hitList(answer.results, collection) : h("p", {}, "No hits."),
  ].filter(Boolean);
}
