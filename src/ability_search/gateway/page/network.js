/** The network view: which parts are there, who offers which tool, how many calls and how long. */

import { get, request } from "./api.js";
import { byId, count, decimal, duration, h } from "./dom.js";
import { failure } from "./failures.js";
import { check } from "./health.js";
import { toolCalls } from "./metrics.js";
import { bar, line } from "./plots.js";

const SECONDS = 2;
const LEAST_MS = 500;
const PLACES = 60;
const SENTENCE = /(?<=\.)\s/;

let timer = 0;
let shows = 0;
let last = null;
const rates = [];

/** Show it, and keep it live until stop(). */
export async function show() {
  stop();
  const own = shows;
  await Promise.all([readAgents(), readCalls()]);
  if (own === shows) timer = setInterval(() => document.hidden || readCalls(), SECONDS * 1000);
}

/** Ask no more. */
export function stop() {
  shows += 1;
  clearInterval(timer);
}

async function readAgents() {
  try {
    const [{ tools }, { parts }] = await Promise.all([get("network"), check()]);
    byId("parts").replaceChildren(h("ul", { class: "parts" }, ...states(parts)));
    byId("agents").replaceChildren(h("h3", {}, "Who offers what"), agents(tools));
  } catch (error) {
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
    const calls = toolCalls(await (await request("metrics")).text());
    note(calls);
    place.replaceChildren(
      h("h3", {}, "Calls through this gateway"),
      ...rate(),
      calls.length ? table(calls) : h("p", {}, "There were none yet."),
    );
  } catch (error) {
    last = null;
    place.replaceChildren(failure(error));
  }
}

function note(calls) {
  const total = calls.reduce((sum, tool) => sum + tool.calls, 0);
  const at = performance.now();
  if (last && at - last.at < LEAST_MS) return;
  if (last && total >= last.total) {
    rates.push((1000 * (total - last.total)) / (at - last.at));
    if (rates.length > PLACES) rates.shift();
  }
  last = { total, at };
}

function rate() {
  if (!rates.length) return [];
  const [now, most] = [rates.at(-1), Math.max(...rates)].map(decimal);
  return [
    h("p", { class: "small" }, `${now} calls a second now, at most ${most} in what is shown`),
    h("div", { class: "rates" }, line(rates, PLACES)),
  ];
}

function table(calls) {
  const most = Math.max(...calls.map((tool) => tool.high));
  const heads = ["Tool", "Calls", "Failed", "Mean", "Half within", "95 % within"];
  const row = (tool) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, tool.name)),
      h("td", { class: "number", "data-head": "calls" }, count(tool.calls)),
      h("td", { class: "number", "data-head": "failed" }, count(tool.failures)),
      h("td", { class: "number", "data-head": "mean" }, duration(tool.mean)),
      h("td", { class: "number", "data-head": "half within" }, duration(tool.median)),
      h(
        "td",
        { class: "plotted", "data-head": "95 % within" },
        duration(tool.high),
        bar(0, tool.high, most),
      ),
    );
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...calls.sort((one, other) => other.calls - one.calls).map(row)),
  );
}
