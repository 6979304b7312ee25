/** Failures as elements: message, hint and actions. */

import { h } from "./dom.js";
import { ask } from "./token.js";

/** Create the element of an error. Entering a token later dispatches the event `token` on the window. */
export function failure(error) {
  return h(
    "div",
    { class: "notice bad" },
    h("p", {}, error.message),
    error.hint ? h("p", { class: "hint" }, error.hint) : null,
    error.code ? h("p", { class: "small" }, h("code", {}, error.code)) : null,
    error.code === "unauthorized" ? tokenButton() : null,
  );
}

function tokenButton() {
  const given = async () => {
    if (await ask({ again: true })) dispatchEvent(new Event("token"));
  };
  return h("button", { type: "button", on: { click: given } }, "Enter token");
}
