/** The bearer token: asked for when the gateway wants one, kept for this tab only. */

import { asked, h } from "./dom.js";

const KEY = "token";
let asking = null;
let declined = false;

/** The header that shows it; a token in other letters than ASCII is sent as its UTF-8 bytes. */
export function authorization() {
  const token = sessionStorage.getItem(KEY);
  if (token === null) return {};
  const bytes = new TextEncoder().encode(token);
  return { Authorization: `Bearer ${String.fromCharCode(...bytes)}` };
}

/** Ask for a token; whether one was given. Whoever declines is not asked again until he wishes. */
export async function ask({ again = false } = {}) {
  if (declined && !again) return false;
  asking ??= dialog().finally(() => (asking = null));
  return asking;
}

async function dialog() {
  const input = h("input", {
    type: "password",
    name: "token",
    autocomplete: "off",
    required: true,
  });
  const wrong = sessionStorage.getItem(KEY) !== null;
  const answer = await asked(
    h(
      "dialog",
      { "aria-labelledby": "token-title", id: "token" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "token-title" }, "The gateway asks for its token"),
        wrong ? h("p", { class: "notice bad" }, "The token that was given is wrong.") : null,
        h("p", {}, "It is the setting SEARCH_GATEWAY_TOKEN, and is kept until this tab is closed."),
        h("label", {}, "Token", input),
        h(
          "p",
          { class: "buttons" },
          h("button", { value: "given" }, "Continue"),
          h("button", { value: "", formnovalidate: true, class: "quiet" }, "Cancel"),
        ),
      ),
    ),
  );
  declined = answer !== "given";
  if (!declined) sessionStorage.setItem(KEY, input.value.trim());
  return !declined;
}
