/** Requests to the gateway this page came from. */

import { ask, authorization } from "./token.js";

/** A failure that the gateway told of: a problem document (RFC 9457). */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The gateway answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.hint = body.hint ?? "";
  }
}

/** The gateway did not answer. */
export class Unreachable extends Error {
  constructor() {
    super("The gateway does not answer.");
    this.code = "unreachable";
    this.hint = "This page goes on by itself as soon as it is back.";
  }
}

let troubled = () => {};

/** Have a function called whenever a request fails for lack of gateway, broker or worker. */
export function onTrouble(listener) {
  troubled = listener;
}

/** The response to a request; throws Problem, Unreachable or, if `signal` says so, AbortError. */
export async function request(path, { body, signal } = {}) {
  for (;;) {
    const shown = authorization();
    const response = await sent(path, shown, body, signal);
    if (response.ok) return response;
    const problem = new Problem(response.status, await response.json().catch(() => ({})));
    if (problem.code === "unavailable") troubled();
    if (problem.code !== "unauthorized") throw problem;
    const given = shown.Authorization !== authorization().Authorization;
    if (!given && !(await ask())) throw problem;
  }
}

/** What a tool answers. */
export async function call(tool, input, { signal } = {}) {
  return parsed(await request(`tools/${tool}`, { body: input, signal }));
}

/** What a GET answers, as JSON. */
export async function get(path) {
  return parsed(await request(path));
}

async function sent(path, shown, body, signal) {
  const headers = { ...shown };
  const options = { headers, signal, cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  try {
    return await fetch(path, options);
  } catch (error) {
    throw unreachable(error);
  }
}

async function parsed(response) {
  try {
    return await response.json();
  } catch (error) {
    throw unreachable(error);
  }
}

function unreachable(error) {
  if (error.name === "AbortError") return error;
  troubled();
  return new Unreachable();
}
