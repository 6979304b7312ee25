/** The network view: components, tools and their providers, call rates and latencies. */

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

/** Show the view and keep it live until stop(). */
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

/** Stop polling. */
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
    byId("agents").replaceChildren(h("h3", {}, "Providers and their tools"), agents(tools));
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
    const providers = tool.providers.length ? tool.providers : [{ name: "not listed by the broker" }];
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
    h("h4", {}, name || "unnamed"),
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

/** Store a reading; returns the calls per second of each tool since the previous one. */
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
  const rates = plot("Calls per second over the last three minutes", shown("calls", "failures"), {
    x,
    series: [
      { label: "calls per second", color: "accent", fill: "33", value: decimal },
      { label: "failed", color: "loss", value: decimal },
    ],
  });
  const times = plot("Latency of calls over the last three minutes", shown("median", "high"), {
    x,
    y: { value: duration },
    series: [
      { label: "median", color: "accent", value: duration },
      { label: "p95", color: "keyword", value: duration },
    ],
  });
  const [text, tools] = [h("p", { class: "small" }), h("div", {})];
  const figure = (title, { element }) => h("figure", {}, h("figcaption", {}, h("h4", {}, title)), element);
  const element = h(
    "div",
    {},
    h("h3", {}, "Calls through this gateway"),
    text,
    h("div", { class: "figures" }, figure("Calls per second", rates), figure("Latency", times)),
    tools,
  );
  const fill = (now, byTool) => {
    text.textContent = told(now);
    rates.update();
    times.update();
    tools.replaceChildren(now.tools.size ? timesOf([...now.tools.values()], byTool) : h("p", {}, "No calls yet."));
  };
  return { element, fill };
})();

function told({ requests, streams }) {
  // One of the requests is this page's own.
  const open = `${plural(requests - 1, "other request")} in progress, ${plural(streams, "event stream")} open`;
  const now = history.at(-1);
  if (!now) return open;
  const most = Math.max(...history.map((each) => each.calls));
  return `${decimal(now.calls)} calls per second, peak ${decimal(most)}; ${open}`;
}

function timesOf(calls, rates) {
  const rows = calls.map((tool) => ({ ...tool, ...latencies(tool) }));
  const most = Math.max(...rows.map((tool) => tool.high));
  const heads = ["Tool", "Calls", "Failed", "Per second", "Mean", "Median", "p95"];
  const cell = (head, text) => h("td", { class: "number", "data-head": head }, text);
  const row = (tool) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, tool.name)),
      cell("calls", count(tool.calls)),
      cell("failed", count(tool.failures)),
      cell("per second", decimal(rates.get(tool.name) ?? 0)),
      cell("mean", duration(tool.mean)),
      cell("median", duration(tool.median)),
      h(
        "td",
        { class: "plotted", "data-head": "p95" },
        duration(tool.high),
        bar(0, tool.high, most),
      ),
    );
  return table(heads, rows.sort((one, other) => other.calls - one.calls).map(row));
}
