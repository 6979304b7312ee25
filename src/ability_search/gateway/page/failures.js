/** What a failure says, with its hint and what can be done here. */

import { h } from "./dom.js";
import { ask } from "./token.js";

/** Its element. Once a token was given after all, the window hears of it by the event `token`. */
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
  return h("button", { type: "button", on: { click: given } }, "Enter the token");
}
