/** The overview of a collection: chunk sizes, growth, and a map on request. */

import { call } from "./api.js";
import { bars, plot } from "./chart.js";
import { count, h, moment, plural, table } from "./dom.js";
import { failure } from "./failures.js";
import { graphOf } from "./graph.js";
import { drawMap } from "./map.js";

const LENGTHS = { minute: 60, hour: 3600, day: 86400, week: 7 * 86400, month: 30 * 86400, year: 365 * 86400 };
const SIZES = [1000, 2500, 5000];

/** Return an element for a collection and `read()`, which refreshes it except for the map. */
export function overviewOf(collection) {
  const figures = h("div", { class: "figures" });
  const element = h("div", {}, figures, mapOf(collection), graphOf(collection));
  let last = "";
  const read = async () => {
    try {
      const wanted = { collection, include: ["tokens", "growth"] };
      const { tokens, growth, createdAt, updatedAt } = await call("notes-overview", wanted);
      const now = JSON.stringify([tokens, growth]);
      const span = [createdAt, updatedAt].map((at) => Date.parse(at) / 1000);
      if (now !== last) figures.replaceChildren(sizes(tokens), growing(growth, span));
      last = now;
    } catch (error) {
      last = "";
      figures.replaceChildren(failure(error));
    }
  };
  return { collection, element, read };
}

function figure(title, note, drawn, heads, rows) {
  const others = heads.slice(1);
  const row = ([name, ...values]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      ...values.map((value, place) => h("td", { "data-head": others[place].toLowerCase() }, value)),
    );
  const exact = table(heads, rows.map(row), { class: "plain" });
  return h(
    "figure",
    {},
    h("figcaption", {}, h("h4", {}, title), h("p", { class: "small" }, note)),
    rows.length ? drawn.element : null,
    rows.length ? h("details", {}, h("summary", {}, "As a table"), exact) : null,
  );
}

function sizes({ bins, counted, sampled }) {
  const name = ({ minTokens: least, maxTokens: most }) =>
    least === most ? count(least) : `${count(least)} to ${count(most)}`;
  const peak = bins.reduce((best, bin) => (bin.chunks > (best?.chunks ?? 0) ? bin : best), null);
  const note = peak
    ? `${sampled ? "A sample of " : ""}${plural(counted, "chunk")}; the most common size is ${name(peak)} tokens`
    : "There are no chunks yet.";
  const data = [bins.map((bin) => bin.minTokens), bins.map((bin) => bin.chunks)];
  const range = () => [bins[0].minTokens, bins.at(-1).maxTokens + 1];
  const chunks = { label: "chunks", color: "accent", fill: "66", paths: bars(), value: count };
  const drawn = plot(`Chunks by number of tokens. ${note}`, () => data, {
    y: { whole: true },
    x: { label: "tokens", range, value: (_, index) => name(bins[index]) },
    series: [chunks],
  });
  const rows = bins.map((bin) => [name(bin), count(bin.chunks)]);
  return figure("Tokens per chunk", note, drawn, ["Tokens", "Chunks"], rows);
}

function growing({ unit, periods }, span) {
  const data = grown(unit, periods, span);
  const note = periods.length
    ? `Stored sources and chunks by the ${unit} of their last indexing`
    : "Nothing is stored yet.";
  const all = ["chunks", "sources"].map((what) => periods.reduce((sum, each) => sum + each[what], 0));
  const label = `Growth to ${plural(all[0], "chunk")} of ${plural(all[1], "source")}. ${note}`;
  const drawn = plot(label, () => data, {
    y: { whole: true },
    x: { time: true, label: "time", value: (at) => new Date(1000 * at).toLocaleString("en") },
    series: [
      { label: "chunks", color: "accent", fill: "33", value: count },
      { label: "sources", color: "keyword", scale: "right", dash: [6, 3], value: count },
    ],
  });
  const rows = periods.map((each) => [moment(each.start), count(each.sources), count(each.chunks)]);
  return figure("Growth", note, drawn, [`Start of ${unit}`, "Sources", "Chunks"], rows);
}

/**
 * Return times and cumulative chunks and sources, rising within each period, flat in between and
 * until now. Nothing happened before the first or after the second instant of `span`.
 */
function grown(unit, periods, [created, updated]) {
  const data = [[], [], []];
  const add = (at, chunks, sources) => {
    if (data[0].at(-1) >= at) return;
    [at, chunks, sources].forEach((value, place) => data[place].push(value));
  };
  let [chunks, sources] = [0, 0];
  for (const each of periods) {
    const start = Date.parse(each.start) / 1000;
    const end = Math.min(start + LENGTHS[unit], updated);
    const begin = Math.min(Math.max(start, created), end - 1);
    add(begin, chunks, sources);
    [chunks, sources] = [chunks + each.chunks, sources + each.sources];
    add(Math.max(end, begin + 1), chunks, sources);
  }
  if (periods.length) add(Date.now() / 1000, chunks, sources);
  return data;
}

function mapOf(collection) {
  const place = h("div", {});
  const most = h("select", {}, ...SIZES.map((size) => h("option", { value: size }, count(size))));
  const button = h("button", { type: "button" }, "Draw map");
  button.addEventListener("click", async () => {
    button.disabled = true;
    place.replaceChildren(h("p", { role: "status" }, "Drawing\u2026"));
    try {
      const wanted = { collection, include: ["map"], mapPoints: Number(most.value) };
      const { map } = await call("notes-overview", wanted);
      place.replaceChildren(drawMap(collection, map));
      button.textContent = "Redraw";
    } catch (error) {
      place.replaceChildren(failure(error));
    } finally {
      button.disabled = false;
    }
  });
  return h(
    "section",
    { class: "map", "aria-label": "Map" },
    h("h4", {}, "Map"),
    h("p", { class: "small" }, "Each point is a chunk; chunks of similar meaning are close together."),
    h("form", { on: { submit: (event) => event.preventDefault() } }, h("label", {}, "Maximum points", most), button),
    place,
  );
}
