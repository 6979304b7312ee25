/** Polls the health of gateway, broker and components; more slowly while something is down. */

import { byId, h, plural } from "./dom.js";
import { authorization } from "./token.js";

const STEADY = 5;
const FIRST = 1;
const LONGEST = 15;
const MISSING = {
  database: "No database ability is connected: searching and indexing are not possible.",
  models: "No model manager is connected: hybrid searches fall back to keywords.",
  worker: "No worker is connected: searching and indexing are not possible.",
};

let timer = 0;
let wait = FIRST;
let checking = null;
let usable = null;
let recovered = () => {};

/** Start polling; `listener` is called whenever all components are up again. */
export function watch(listener) {
  recovered = listener;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) check();
  });
  return check();
}

/** Return the current state; concurrent calls share one request. */
export function check() {
  checking ??= checked().finally(() => (checking = null));
  return checking;
}

async function checked() {
  clearTimeout(timer);
  const state = await look();
  wait = state.usable ? STEADY : usable === false ? Math.min(LONGEST, wait * 2) : FIRST;
  timer = setTimeout(due, wait * 1000);
  show(state);
  const before = usable;
  usable = state.usable;
  if (before === false && usable) recovered();
  return state;
}

function due() {
  if (!document.hidden) check();
}

async function look() {
  let health;
  try {
    const options = { cache: "no-store", headers: authorization(), credentials: "omit" };
    health = await (await fetch("health", options)).json();
  } catch {
    return { usable: false, problems: ["The gateway does not answer."], parts: {} };
  }
  if (!health.parts) return { usable: false, problems: [health.detail], parts: {} };
  const down = (part) => health.parts[part]?.state === "down";
  const problems = down("broker") ? ["The gateway cannot reach its broker."] : [];
  for (const [part, text] of Object.entries(MISSING)) if (down(part)) problems.push(text);
  return { usable: health.status === "up", problems, parts: health.parts };
}

function show({ usable: up, problems, parts }) {
  const workers = parts.worker?.providers;
  const state = byId("state");
  state.className = up ? "up" : "down";
  const text = up ? `all components up, ${plural(workers ?? 1, "worker")}` : "some components are down";
  if (state.textContent !== text) state.textContent = text;
  const banner = byId("banner");
  banner.hidden = up;
  const key = problems.join("\n");
  if (banner.dataset.key === key) return;
  banner.dataset.key = key;
  banner.replaceChildren(
    ...problems.map((problem) => h("p", {}, problem)),
    h("p", { class: "small" }, "This page retries automatically."),
    h("button", { type: "button", on: { click: () => check() } }, "Retry now"),
  );
}
