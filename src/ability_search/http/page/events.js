/** Indexing progress by server-sent events; read with fetch, because EventSource sends no token. */

import { request } from "./api.js";

const FIRST = 1000;
const LONGEST = 15000;

/** Call `listener(name, data)` for each event, forever; reconnect with increasing delays. */
export async function follow(listener) {
  for (let wait = FIRST; ; wait = Math.min(LONGEST, wait * 2)) {
    try {
      const response = await request("events");
      for await (const text of lines(response.body)) {
        wait = FIRST;
        hand(text, listener);
      }
    } catch {
      // The health check reports the problem.
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const frames = buffer.split("\n\n");
    buffer = frames.pop();
    yield* frames;
  }
}

function hand(frame, listener) {
  let name = "message";
  const data = [];
  for (const line of frame.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (!data.length) return;
  const value = JSON.parse(data.join("\n"));
  if (value && typeof value === "object") listener(name, value);
}
