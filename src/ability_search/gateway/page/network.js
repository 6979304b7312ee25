/** The network view: which parts are there, who offers which tool, how many calls and how long. */

import { get, request } from "./api.js";
import { plot } from "./chart.js";
import { byId, count, decimal, duration, h, plural, table } from "./dom.js";
import { failure } from "./failures.js";
import { check } from "./health.js";
import { latencies, read, since, total } from "./metrics.js";
import { bar } from "./plots.js";

const SECONDS = 2;
const AGENTS_EVERY = 5;
const LEAST_MS = 500;
const PLACES = 90;
const SENTENCE = /(?<=\.)\s/;

let timer = 0;
let shows = 0;
let last = null;
let listed = "";
const history = [];

/** Show it, and keep it live until stop(). */
export async function show() {
  stop();
  const own = shows;
  await Promise.all([readAgents(), readCalls()]);
  if (own !== shows) return;
  let ticks = 0;
  timer = setInterval(() => {
    if (document.hidden) return;
    readCalls();
    ticks += 1;
    if (ticks % AGENTS_EVERY === 0) readAgents();
  }, SECONDS * 1000);
}

/** Ask no more. */
export function stop() {
  shows += 1;
  clearInterval(timer);
}

async function readAgents() {
  try {
    const [{ tools }, { parts }] = await Promise.all([get("network"), check()]);
    const now = JSON.stringify([tools, parts]);
    if (now === listed) return;
    listed = now;
    byId("parts").replaceChildren(h("ul", { class: "parts" }, ...states(parts)));
    byId("agents").replaceChildren(h("h3", {}, "Who offers what"), agents(tools));
  } catch (error) {
    listed = "";
    byId("parts").replaceChildren(failure(error));
    byId("agents").replaceChildren();
  }
}

function states(parts) {
  return Object.entries(parts).map(([name, part]) => {
    const many = part.providers > 1 ? ` \u00d7 ${part.providers}` : "";
    return h("li", { class: part.state }, `${name}${many}: ${part.state}`);
  });
}

function agents(tools) {
  const offered = new Map();
  for (const tool of tools) {
    const providers = tool.providers.length ? tool.providers : [{ name: "not told by the broker" }];
    for (const { agentId, name } of providers) {
      const key = agentId ?? name;
      if (!offered.has(key)) offered.set(key, { name: name ?? key, agentId, tools: [] });
      offered.get(key).tools.push(tool);
    }
  }
  return h("div", { class: "agents" }, ...[...offered.values()].map(agent));
}

function agent({ name, agentId, tools }) {
  const offer = ({ name: tool, description }) =>
    h("li", {}, h("code", {}, tool), h("span", { class: "small" }, ` ${description.split(SENTENCE)[0]}`));
  return h(
    "section",
    { class: "column" },
    h("h4", {}, name || "without a name"),
    agentId ? h("p", { class: "small source" }, agentId) : null,
    h("ul", {}, ...tools.map(offer)),
  );
}

async function readCalls() {
  const place = byId("calls");
  try {
    const now = read(await (await request("metrics")).text());
    const rates = note(now);
    if (!place.contains(live.element)) place.replaceChildren(live.element);
    live.fill(now, rates);
  } catch (error) {
    last = null;
    place.replaceChildren(failure(error));
  }
}

/** Remember a reading; returns the calls a second of each tool since the one before. */
function note(now) {
  const at = performance.now();
  if (last && at - last.at < LEAST_MS) return last.rates;
  const rates = new Map();
  if (last) {
    const seconds = (at - last.at) / 1000;
    for (const [name, tool] of now.tools) {
      rates.set(name, since(last.tools.get(name), tool).calls / seconds);
    }
    const all = since(total(last.tools), total(now.tools));
    const { median, high } = latencies(all);
    const [calls, failures] = [all.calls / seconds, all.failures / seconds];
    history.push({ at: Date.now() / 1000, calls, failures, median, high });
    if (history.length > PLACES) history.shift();
  }
  last = { tools: now.tools, at, rates };
  return rates;
}

const live = (() => {
  const shown = (...names) => () => ["at", ...names].map((name) => history.map((each) => each[name]));
  const range = () => {
    const end = history.at(-1)?.at ?? Date.now() / 1000;
    return [end - PLACES * SECONDS, end];
  };
  const x = { time: true, label: "time", range, value: (at) => new Date(1000 * at).toLocaleTimeString("en") };
  const rates = plot("Calls a second, of the last three minutes", shown("calls", "failures"), {
    x,
    series: [
      { label: "calls a second", color: "accent", fill: "33", value: decimal },
      { label: "failed", color: "loss", value: decimal },
    ],
  });
  const times = plot("How long calls took, of the last three minutes", shown("median", "high"), {
    x,
    y: { value: duration },
    series: [
      { label: "half within", color: "accent", value: duration },
      { label: "95 % within", color: "keyword", value: duration },
    ],
  });
  const [text, tools] = [h("p", { class: "small" }), h("div", {})];
  const figure = (title, { element }) => h("figure", {}, h("figcaption", {}, h("h4", {}, title)), element);
  const element = h(
    "div",
    {},
    h("h3", {}, "Calls through this gateway"),
    text,
    h("div", { class: "figures" }, figure("Calls a second", rates), figure("Latency", times)),
    tools,
  );
  const fill = (now, byTool) => {
    text.textContent = told(now);
    rates.update();
    times.update();
    tools.replaceChildren(now.tools.size ? timesOf([...now.tools.values()], byTool) : h("p", {}, "There were none yet."));
  };
  return { element, fill };
})();

function told({ requests, streams }) {
  // One of the requests is that of this page.
  const open = `${plural(requests - 1, "other request")} in progress, ${plural(streams, "event stream")} open`;
  const now = history.at(-1);
  if (!now) return open;
  const most = Math.max(...history.map((each) => each.calls));
  return `${decimal(now.calls)} calls a second now, at most ${decimal(most)} in what is shown; ${open}`;
}

function timesOf(calls, rates) {
  const rows = calls.map((tool) => ({ ...tool, ...latencies(tool) }));
  const most = Math.max(...rows.map((tool) => tool.high));
  const heads = ["Tool", "Calls", "Failed", "A second now", "Mean", "Half within", "95 % within"];
  const cell = (head, text) => h("td", { class: "number", "data-head": head }, text);
  const row = (tool) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, tool.name)),
      cell("calls", count(tool.calls)),
      cell("failed", count(tool.failures)),
      cell("a second now", decimal(rates.get(tool.name) ?? 0)),
      cell("mean", duration(tool.mean)),
      cell("half within", duration(tool.median)),
      h(
        "td",
        { class: "plotted", "data-head": "95 % within" },
        duration(tool.high),
        bar(0, tool.high, most),
      ),
    );
  return table(heads, rows.sort((one, other) => other.calls - one.calls).map(row));
}
