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

function current() {
  const name = location.hash.slice(1);
  return VIEWS.includes(name) ? name : VIEWS[0];
}

function show({ focus = false } = {}) {
  const name = current();
  for (const view of VIEWS) byId(`view-${view}`).hidden = view !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (name === "network") network.show();
  else network.stop();
  if (name === "collections") collections.refresh();
  if (focus) (name === "search" ? byId("query") : byId(`title-${name}`)).focus();
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
  if (current() === "network") network.show();
}

addEventListener("hashchange", () => {
  // The skip link is not a view.
  if (location.hash !== "#main") show({ focus: true });
});
addEventListener("token", comeBack);
collections.onNames(names);
onTrouble(check);
search.start();
indexing.start(refreshSoon);
if (current() !== "collections") collections.refresh();
show();
follow(indexing.progress);
watch(comeBack);
