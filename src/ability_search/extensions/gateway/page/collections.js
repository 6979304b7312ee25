/** The collections view: the sizes of all collections, and beside them the sources of one. */

import { call, get } from "./api.js";
import { asked, byId, count, decimal, described, h, moment, plural, table } from "./dom.js";
import { failure } from "./failures.js";
import { overviewOf } from "./overview.js";
import { bar, range } from "./plots.js";
import { searchAddress } from "./search.js";

const PAGE = 50;
let opened = null;
let listed = "";
let detailed = "";
let turned = [];
let overview = null;
let nameListener = () => {};

/** Call `listener` with the names of all collections whenever they are read. */
export function onNames(listener) {
  nameListener = listener;
}

/** Show a collection beside the list, or with `null` the list only, and read them again. */
export function show(name) {
  const changed = name !== opened;
  if (changed) close(name);
  return refresh({ focus: changed && name !== null });
}

/** Read all collections and the open one again; unchanged elements and their focus stay. */
export async function refresh({ focus = false } = {}) {
  const overview = byId("overview");
  try {
    const { collections } = await get("collections");
    collections.sort((one, other) => other.chunks - one.chunks || (one.name < other.name ? -1 : 1));
    nameListener(collections.map(({ name }) => name));
    const read = JSON.stringify(collections);
    if (read !== listed) overview.replaceChildren(...shown(collections));
    listed = read;
    for (const link of overview.querySelectorAll("th a")) {
      if (link.textContent === opened) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const found = collections.some(({ name }) => name === opened);
    if (!found && byId("detail").children.length) location.replace("#collections");
    if (!found) close();
    else await open(opened, { cursors: turned, focus });
  } catch (error) {
    listed = "";
    overview.replaceChildren(failure(error));
  }
}

function shown(collections) {
  if (collections.length) return [tiles(collections), listing(collections)];
  const link = h("a", { href: "#index" }, "Index files");
  return [h("p", {}, "There are no collections yet. ", link, ".")];
}

function tiles(collections) {
  const sum = (value) => collections.reduce((total, each) => total + value(each), 0);
  const told = {
    collections: count(collections.length),
    sources: count(sum((each) => each.sources)),
    chunks: count(sum((each) => each.chunks)),
    tokens: count(sum((each) => each.chunks * each.avgTokens)),
  };
  return described(told, { class: "tiles" });
}

function listing(collections) {
  const chunks = Math.max(...collections.map((each) => each.chunks));
  const tokens = Math.max(...collections.map((each) => each.maxTokens));
  const sizes = "Tokens per chunk: min, mean, max";
  const heads = ["Collection", "Sources", "Chunks", sizes, "Model", "Updated"];
  const rows = collections.map((each) => line(each, chunks, tokens));
  return table(heads, rows);
}

function line(each, chunks, tokens) {
  const address = `#collections?${new URLSearchParams({ name: each.name })}`;
  const numbers = [each.minTokens, each.avgTokens, each.maxTokens].map(count).join(" · ");
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: address }, each.name)),
    h("td", { class: "number", "data-head": "sources" }, count(each.sources)),
    h("td", { class: "plotted", "data-head": "chunks" }, count(each.chunks), bar(0, each.chunks, chunks)),
    h(
      "td",
      { class: "plotted", "data-head": "tokens" },
      numbers,
      range(each.minTokens, each.avgTokens, each.maxTokens, tokens),
    ),
    h("td", { "data-head": "model" }, each.model),
    h("td", { "data-head": "updated" }, moment(each.updatedAt)),
  );
}

/** Remove the details; `next` is the collection that is to be opened. */
function close(next = null) {
  [opened, turned, overview, detailed] = [next, [], null, ""];
  byId("detail").replaceChildren();
  byId("browse").classList.toggle("split", next !== null);
}

/** Show a collection; `cursors` are those of the pages of sources up to the current one. */
async function open(name, { cursors = [], focus = false } = {}) {
  [opened, turned] = [name, cursors];
  const detail = byId("detail");
  const query = new URLSearchParams({ limit: PAGE });
  if (cursors.length) query.set("cursor", cursors.at(-1));
  try {
    const info = await get(`collections/${encodeURIComponent(name)}?${query}`);
    if (opened !== name || turned !== cursors) return;
    const read = JSON.stringify([info, cursors]);
    if (read === detailed && !focus) return;
    detailed = read;
    const title = h("h3", { tabindex: "-1" }, name);
    if (overview?.collection !== name) overview = overviewOf(name);
    const parts = [facts(info), actions(info), overview.element, ...sources(info, cursors)];
    detail.replaceChildren(title, ...parts);
    if (focus) title.focus();
    await overview.read();
  } catch (error) {
    if (opened !== name || turned !== cursors) return;
    detailed = "";
    detail.replaceChildren(failure(error));
  }
}

function facts(info) {
  const tokens = `${count(info.minTokens)} to ${count(info.maxTokens)}`;
  const told = {
    chunks: count(info.chunks),
    sources: count(info.sourceCount),
    "tokens per chunk": `${tokens}, ${decimal(info.avgTokens)} on average`,
    model: `${info.model}, ${plural(info.dimensions, "dimension")}, ${info.similarity}`,
    "keyword search": info.language,
    "in the vector index": `${decimal(info.embeddedPercent)} %`,
    state: `${info.state}, generation ${info.generation}`,
    created: moment(info.createdAt),
    updated: moment(info.updatedAt),
  };
  return described(told, { class: "facts" });
}

function actions(info) {
  const name = info.collection;
  const all = plural(info.sourceCount, "source");
  const text = `Delete the collection ${name} with ${all}? This cannot be undone.`;
  const remove = (event) => removal(event.target, text, { collection: name });
  return h(
    "p",
    { class: "buttons" },
    h("a", { class: "button", href: searchAddress(name) }, "Search"),
    h("button", { type: "button", class: "danger", on: { click: remove } }, "Delete collection"),
  );
}

function sources(info, cursors) {
  const first = cursors.length * PAGE;
  const go = (to) => () => open(info.collection, { cursors: to, focus: true });
  const turn = (label, to, possible) =>
    h("button", { type: "button", disabled: !possible, on: { click: go(to) } }, label);
  const heading = info.sources.length
    ? `Sources ${count(first + 1)} to ${count(first + info.sources.length)} of ${count(info.sourceCount)}`
    : "No sources";
  return [
    h("h4", {}, heading),
    h("ul", { class: "sources" }, ...info.sources.map((source) => sourceLine(info.collection, source))),
    h(
      "p",
      { class: "buttons" },
      turn("Previous", cursors.slice(0, -1), cursors.length > 0),
      turn("Next", [...cursors, info.nextCursor], info.nextCursor !== undefined),
    ),
  ];
}

function sourceLine(collection, source) {
  const text = `Delete ${source} from ${collection}? This cannot be undone.`;
  const remove = (event) => removal(event.target, text, { collection, source });
  return h(
    "li",
    {},
    h("span", { class: "source" }, source),
    h(
      "button",
      { type: "button", class: "danger quiet", "aria-label": `Delete ${source}`, on: { click: remove } },
      "Delete",
    ),
  );
}

async function removal(button, text, input) {
  const dialog = h(
    "dialog",
    { role: "alertdialog", "aria-labelledby": "delete-text" },
    h(
      "form",
      { method: "dialog" },
      h("p", { id: "delete-text" }, text),
      h(
        "p",
        { class: "buttons" },
        h("button", { value: "", class: "quiet", autofocus: true }, "Cancel"),
        h("button", { value: "delete", class: "danger" }, "Delete"),
      ),
    ),
  );
  if ((await asked(dialog)) !== "delete") return;
  button.disabled = true;
  try {
    await call("search-delete", input);
    await refresh();
    byId("title-collections").focus();
  } catch (error) {
    button.disabled = false;
    byId("detail").prepend(failure(error));
  }
}
