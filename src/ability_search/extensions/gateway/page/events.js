/** Server-sent events; read with fetch, because EventSource sends no token. */

import { request } from "./api.js";

const FIRST = 1000;
const LONGEST = 15000;

/** Call `listener(name, data)` for each event of indexing, forever; reconnect with increasing delays. */
export async function follow(listener) {
  for (let wait = FIRST; ; wait = Math.min(LONGEST, wait * 2)) {
    try {
      for await (const [name, value] of events(await request("events"))) {
        wait = FIRST;
        listener(name, value);
      }
    } catch {
      // The health check reports the problem.
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** Yield the name and the value of each server-sent event of a response. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const frames = buffer.split("\n\n");
    buffer = frames.pop();
    yield* frames.map(event).filter(Boolean);
  }
}

function event(frame) {
  let name = "message";
  const data = [];
  for (const line of frame.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  const value = data.length ? JSON.parse(data.join("\n")) : null;
  return value && typeof value === "object" ? [name, value] : null;
}
