/** The bearer token: requested when the gateway requires one, kept for this tab only. */

import { asked, h } from "./dom.js";

const KEY = "token";
let asking = null;
let declined = false;

/** Return the Authorization header; a non-ASCII token is sent as its UTF-8 bytes. */
export function authorization() {
  const token = sessionStorage.getItem(KEY);
  if (token === null) return {};
  const bytes = new TextEncoder().encode(token);
  return { Authorization: `Bearer ${String.fromCharCode(...bytes)}` };
}

/** Ask for a token; resolves to whether one was entered. After a refusal, ask only if `again`. */
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
        h("h2", { id: "token-title" }, "Token required"),
        wrong ? h("p", { class: "notice bad" }, "The token is wrong.") : null,
        h("p", {}, "Enter the value of SEARCH_GATEWAY_TOKEN. It is kept until this tab is closed."),
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
