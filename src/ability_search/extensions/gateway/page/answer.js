/** An answer with citations, shown as it is streamed, above the passages that it cites. */

import { request, unreachable } from "./api.js";
import { h } from "./dom.js";
import { events } from "./events.js";
import { queryResult, showHit } from "./hit.js";

const OUTCOMES = {
  answered: "Answered, with citations.",
  not_in_sources: "Not in the sources.",
  passages: "No language model answered. These are the best passages.",
};

/**
 * Ask a question and show the answer in `body`; resolves to what became of it.
 *
 * Throws what `request` throws; what was shown until then remains.
 */
export async function answer(input, body, signal) {
  const response = await request("ask", { body: input, signal, accept: "text/event-stream" });
  const text = h("p", { class: "answer", "aria-live": "polite" });
  const notes = h("div");
  let found = null;
  let outcome = null;
  const on = {
    passages(result) {
      found = result;
      const cited = h("div", { class: "cited" }, ...queryResult(found, input.collection));
      body.replaceChildren(text, notes, cited);
    },
    sentence(said) {
      if (said.support !== "none") text.append(...sentence(said, found.results, input.collection));
    },
    answer(whole) {
      outcome = OUTCOMES[whole.outcome];
      notes.replaceChildren(...remarks(whole, found.warnings));
    },
  };
  try {
    for await (const [name, value] of events(response)) on[name]?.(value);
  } catch (error) {
    throw unreachable(error);
  }
  if (outcome === null) throw unreachable(new Error("the stream ended early"));
  return outcome;
}

function sentence({ text, citations, support }, passages, collection) {
  const link = (number) => {
    const hit = passages[number - 1];
    const title = `Passage ${number}: ${hit.source}`;
    const open = () => showHit(title, hit, collection);
    return h("button", { type: "button", class: "link", "aria-label": title, on: { click: open } }, `[${number}]`);
  };
  const marked = support === "partial" ? h("span", { class: "small" }, "(supported in part) ") : null;
  return [text, ...citations.flatMap((number) => [" ", link(number)]), " ", marked].filter(Boolean);
}

/** Create the elements for why there is no answer, for warnings, and for sentences that were left out. */
function remarks({ outcome, reason, sentences, warnings = [] }, shown = []) {
  const why = outcome === "answered" ? [] : [h("p", {}, h("strong", {}, OUTCOMES[outcome])), h("p", {}, reason)];
  const left = sentences
    .filter(({ support }) => support === "none")
    .map(({ text, missing }) => h("li", {}, text, missing ? ` (not in the passages: ${missing.join(", ")})` : ""));
  const further = warnings.filter((each) => !shown.includes(each));
  return [
    why.length ? h("div", { class: "notice" }, ...why) : null,
    ...further.map((each) => h("p", { class: "notice" }, each)),
    left.length
      ? h("details", { class: "small" }, h("summary", {}, "Left out, not supported by a passage"), h("ul", {}, ...left))
      : null,
  ].filter(Boolean);
}
