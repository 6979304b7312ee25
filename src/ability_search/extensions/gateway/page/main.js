/** The page: switching of views, and recovery after failures. */

import { onTrouble } from "./api.js";
import * as collections from "./collections.js";
import { byId, h } from "./dom.js";
import { follow } from "./events.js";
import { check, watch } from "./health.js";
import * as indexing from "./indexing.js";
import * as network from "./network.js";
import * as search from "./search.js";

const VIEWS = ["search", "collections", "index", "network"];
const AT_ONCE = 300;
let refreshing = 0;
let view = null;

/** Show the view that the address names; the rest of the address is the state of the view. */
function show() {
  const [named, state] = location.hash.slice(1).split("?");
  const name = VIEWS.includes(named) ? named : VIEWS[0];
  const parameters = new URLSearchParams(state);
  const changed = view !== null && view !== name;
  view = name;
  for (const each of VIEWS) {
    const link = byId(`to-${each}`);
    byId(`view-${each}`).hidden = each !== name;
    if (each !== name) link.removeAttribute("aria-current");
    else {
      link.setAttribute("aria-current", "page");
      if (named === name) link.hash = location.hash; // come back to the same state
    }
  }
  if (name === "network") network.show();
  else network.stop();
  if (changed) (name === "search" ? byId("query") : byId(`title-${name}`)).focus();
  if (name === "search") search.show(parameters);
  if (name === "collections") collections.show(parameters.get("name"));
}

function names(found) {
  search.choose(found);
  byId("collection-names").replaceChildren(...found.map((name) => h("option", { value: name })));
}

/** Read the collections again, once for several events in quick succession. */
function refreshSoon() {
  clearTimeout(refreshing);
  refreshing = setTimeout(collections.refresh, AT_ONCE);
}

function comeBack() {
  refreshSoon();
  search.retry();
  if (view === "network") network.show();
}

addEventListener("hashchange", () => {
  // The skip link is not a view.
  if (location.hash !== "#main") show();
});
addEventListener("token", comeBack);
collections.onNames(names);
onTrouble(check);
search.start();
indexing.start(refreshSoon);
show();
if (view !== "collections") collections.refresh();
follow(indexing.progress);
watch(comeBack);
