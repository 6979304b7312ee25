/** Requests to the gateway that serves this page. */

import { ask, authorization } from "./token.js";

/** A failure reported by the gateway as a problem document (RFC 9457). */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The gateway returned status ${status}.`);
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
    this.hint = "This page reconnects automatically.";
  }
}

let troubled = () => {};

/** Call `listener` whenever a request fails because gateway, broker or worker is unavailable. */
export function onTrouble(listener) {
  troubled = listener;
}

/** Send a request and return the response; throws Problem, Unreachable or (by `signal`) AbortError. */
export async function request(path, { body, signal, accept } = {}) {
  for (;;) {
    const shown = authorization();
    const response = await sent(path, accept ? { ...shown, Accept: accept } : shown, body, signal);
    if (response.ok) return response;
    const problem = new Problem(response.status, await response.json().catch(() => ({})));
    if (problem.code === "unavailable") troubled();
    if (problem.code !== "unauthorized") throw problem;
    const given = shown.Authorization !== authorization().Authorization;
    if (!given && !(await ask())) throw problem;
  }
}

/** Call a tool and return its result. */
export const call = (tool, input, options) => post(`tools/${tool}`, input, options);

/** Send JSON and return the JSON of the response. */
export async function post(path, body, { signal } = {}) {
  return parsed(await request(path, { body, signal }));
}

/** Send a GET request and return the JSON of the response. */
export async function get(path) {
  return parsed(await request(path));
}

async function sent(path, own, body, signal) {
  const headers = { ...own };
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

/** Return the failure to throw for an error of fetch or of reading a response. */
export function unreachable(error) {
  if (error.name === "AbortError") return error;
  troubled();
  return new Unreachable();
}
