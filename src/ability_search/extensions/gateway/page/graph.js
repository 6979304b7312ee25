/** The graph of a collection: its last analysis as a drawing and lists, renewed on request. */

import { call } from "./api.js";
import { count, h, plural, svg } from "./dom.js";
import { failure } from "./failures.js";

const SIZE = 600;
const MARGIN = 15;
const LISTS = {
  central: "Central (PageRank)",
  bridges: "Bridges (betweenness)",
  hubs: "Diverse hubs (entropy of edges)",
  boundary: "Boundary (Fiedler vector)",
  novel: "Novel (above noise)",
  surprising: "Surprising (nats)",
};

/** Return the section of a collection; it reads the last analysis when it is opened. */
export function graphOf(collection) {
  const place = h("div", {});
  const button = h("button", { type: "button" }, "Analyse");
  const read = async () => {
    const { graph } = await call("notes-overview", { collection, include: ["graph"] });
    place.replaceChildren(graph ? analysis(graph) : h("p", { class: "small" }, "Not analysed yet."));
  };
  const attempt = async (work) => {
    button.disabled = true;
    place.replaceChildren(h("p", { role: "status" }, "Analysing\u2026"));
    try {
      await work();
      await read();
    } catch (error) {
      place.replaceChildren(failure(error));
    } finally {
      button.disabled = false;
    }
  };
  button.addEventListener("click", () => attempt(() => call("notes-analyze", { collection })));
  const details = h("details", {}, h("summary", {}, "Central, connecting and novel chunks"), button, place);
  details.addEventListener("toggle", () => details.open && !place.firstChild && attempt(async () => {}));
  return h("section", { class: "graph", "aria-label": "Graph" }, h("h4", {}, "Graph"), details);
}

function analysis(graph) {
  const edges = Object.entries(graph.edges).filter(([, number]) => number);
  const components = graph.components.reduce((sum, each) => sum + each.components, 0);
  const told = [
    plural(graph.chunks, "chunk"),
    ...edges.map(([kind, number]) => `${count(number)} ${kind}`),
    plural(components, "component"),
    `spectral gap ${graph.spectrum.gap.toPrecision(3)}`,
    `${graph.novelty.outliers.length} directions above noise`,
  ];
  const lists = Object.entries(LISTS).filter(([name]) => graph[name].length);
  return h(
    "div",
    {},
    h("p", { class: "small" }, told.join(" · ")),
    graph.drawing.nodes.length ? drawn(graph.drawing) : null,
    ...lists.map(([name, title]) => h("details", {}, h("summary", {}, title), ranked(graph[name]))),
  );
}

function ranked(chunks) {
  const line = (each) => h("li", {}, `${each.value.toPrecision(3)} ${each.chunkId} `, h("small", {}, each.title));
  return h("ol", { class: "plain" }, ...chunks.map(line));
}

/** Draw the most central chunks and their edges; the two sides of the weakest link have colours. */
function drawn({ nodes, edges }) {
  const [across, down] = ["x", "y"].map((axis) => placed(nodes.map((node) => node[axis])));
  const line = ({ start, end, kind }) =>
    svg("line", { x1: across[start], y1: SIZE - down[start], x2: across[end], y2: SIZE - down[end], class: kind });
  const dot = ({ chunkId, centrality, side }, index) =>
    svg(
      "circle",
      { cx: across[index], cy: SIZE - down[index], r: 3 + 6 * centrality, class: `c${side + 1}` },
      svg("title", {}, chunkId),
    );
  const label = `Graph of ${plural(nodes.length, "chunk")} with ${plural(edges.length, "edge")}`;
  const box = { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": label };
  return svg("svg", box, ...edges.map(line), ...nodes.map(dot));
}

function placed(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const share = (value) => (most > least ? (value - least) / (most - least) : 0.5);
  return values.map((value) => MARGIN + (SIZE - 2 * MARGIN) * share(value));
}
