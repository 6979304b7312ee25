/** The map of a collection: one point per chunk, accessible by pointer or arrow keys. */

import { call } from "./api.js";
import { drawing } from "./chart.js";
import { count, h, plural, score, svg } from "./dom.js";
import { failure } from "./failures.js";
import { groupsOf } from "./groups.js";
import uPlot from "./vendor/uPlot.esm.js";

const HEIGHT = 480;
const RADIUS = 3;
/** Maximum distance of the pointer from a point, in pixels. */
const REACH = 20;
/** Size of the visible area relative to the extent of the points. */
const MARGIN = 1.1;
const SIMILAR = 10;
const ZOOM = { "+": 0.5, "=": 0.5, "-": 2 };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const KEYS = "Arrow keys move between points, Enter finds similar chunks, + and - zoom, 0 shows all.";

/** Create the element of a map. */
export function drawMap(collection, map) {
  const { points, chunks } = map;
  if (!points.length) return h("p", {}, "There are no chunks to draw yet.");
  const [x, y] = map.explainedVariance.map((share) => `${Math.round(100 * share)} %`);
  const part = points.length < chunks ? `A sample of ${count(points.length)} of ` : "";
  const note = `${part}${plural(chunks, "chunk")}, by principal components: ${x} (across) and ${y} (up) of the variance`;
  const groups = groupsOf(points);
  return h(
    "div",
    {},
    h("p", { class: "small" }, note),
    legend(groups),
    new Chart(collection, points, groups, note).element,
  );
}

function legend(groups) {
  const entry = ({ name, color, points }) =>
    h(
      "li",
      {},
      h("span", { class: `swatch ${color}`, "aria-hidden": "true" }),
      h("span", { class: "name", title: name }, name),
      h("span", { class: "small" }, count(points.length)),
    );
  return h("ul", { class: "legend", "aria-label": "Colours by source" }, ...groups.map(entry));
}

class Chart {
  constructor(collection, points, groups, note) {
    Object.assign(this, { collection, points, groups, active: null, similar: [], shown: null, seen: null });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.panel = h("div", { class: "found" }, h("p", { class: "small" }, `Select a point. ${KEYS}`));
    this.stage = h("div", {
      class: "stage",
      role: "application",
      tabindex: "0",
      "aria-label": `Map. ${note}. ${KEYS}`,
      on: {
        keydown: (event) => this.key(event),
        focus: () => this.stage.matches(":focus-visible") && this.go(this.active ?? this.middle()),
        blur: () => this.go(null),
      },
    });
    drawing(this.stage, (...drawn) => this.draw(...drawn));
    const around = h("div", { class: "around" }, this.stage, this.tip);
    this.element = h("div", { class: "mapped" }, around, this.panel);
  }

  draw(place, width, color) {
    const full = frame(this.points, width, HEIGHT);
    const range = (_, least, most) => [least, most];
    const series = this.groups.map((group) => ({
      label: group.name,
      stroke: color(group.color),
      paths: dots,
      facets: [{ scale: "x", auto: true }, { scale: "y", auto: true }],
    }));
    this.full = full;
    this.plot = new uPlot(
      {
        mode: 2,
        width,
        height: HEIGHT,
        padding: [0, 0, 0, 0],
        legend: { show: false },
        axes: [{ show: false }, { show: false }],
        scales: { x: { time: false, range }, y: { range } },
        series: [{}, ...series],
        cursor: {
          x: false,
          y: false,
          points: { show: false },
          drag: { x: true, y: true, dist: 8, setScale: false },
          bind: { dblclick: () => () => this.show(this.full) },
        },
        hooks: {
          draw: [() => this.mark()],
          ready: [(plot) => this.listen(plot)],
          setSelect: [(plot) => this.select(plot)],
        },
      },
      [null, ...this.groups.map(({ points }) => ["x", "y"].map((axis) => points.map((each) => each[axis])))],
      place,
    );
    this.show(this.seen ?? full);
    return this.plot;
  }

  listen({ over }) {
    let pressed = null;
    over.addEventListener("mousemove", (event) => this.go(this.near(event), { pointed: true }));
    over.addEventListener("mouseleave", () => this.go(null));
    over.addEventListener("mousedown", (event) => (pressed = [event.clientX, event.clientY]));
    over.addEventListener("click", (event) => {
      const moved = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]);
      const point = this.near(event);
      if (point && !(moved > REACH / 2)) this.choose(point);
    });
  }

  /** Return the position of a point in pixels from the upper left corner. */
  at(point) {
    return [this.plot.valToPos(point.x, "x"), this.plot.valToPos(point.y, "y")];
  }

  near({ clientX, clientY }) {
    const box = this.plot.over.getBoundingClientRect();
    const found = this.best(([left, top]) => Math.hypot(clientX - box.left - left, clientY - box.top - top));
    return found.cost <= REACH ? found.point : null;
  }

  middle() {
    return this.best(([left, top]) => Math.hypot(left - this.plot.width / 2, top - HEIGHT / 2)).point;
  }

  best(costOf) {
    let found = { point: null, cost: Infinity };
    for (const point of this.points) {
      const cost = costOf(this.at(point), point);
      if (cost < found.cost) found = { point, cost };
    }
    return found;
  }

  key(event) {
    const { key } = event;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (ARROWS[key]) this.step(ARROWS[key]);
    else if (ZOOM[key]) this.zoom(ZOOM[key]);
    else if (key === "0") this.show(this.full);
    else if (key === "Enter" && this.active) this.choose(this.active);
    else return;
    event.preventDefault();
  }

  /** Move to the nearest point in a direction; sideways distance counts twice. */
  step([right, down]) {
    const [left, top] = this.at(this.active ?? this.middle());
    const { point } = this.best(([x, y], other) => {
      const ahead = (x - left) * right + (y - top) * down;
      const aside = Math.abs((x - left) * down) + Math.abs((y - top) * right);
      return other !== this.active && ahead > 0 && ahead >= aside / 2 ? ahead + 2 * aside : Infinity;
    });
    if (point) this.go(point);
  }

  zoom(factor) {
    const around = this.active ?? this.middle();
    const shown = {};
    for (const axis of ["x", "y"]) {
      const half = (factor * (this.plot.scales[axis].max - this.plot.scales[axis].min)) / 2;
      shown[axis] = [around[axis] - half, around[axis] + half];
    }
    this.show(shown);
  }

  /** Zoom to the dragged area. */
  select(plot) {
    const { left, top, width, height } = plot.select;
    if (!width || !height) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const along = (axis, from, to) => [from, to].map((at) => plot.posToVal(at, axis));
    this.show({ x: along("x", left, left + width), y: along("y", top + height, top) });
  }

  /** Show an area of the plane; it stays after the plot is redrawn. */
  show(part) {
    const { x, y } = part;
    this.seen = part === this.full ? null : part;
    this.plot.batch(() => {
      this.plot.setScale("x", { min: x[0], max: x[1] });
      this.plot.setScale("y", { min: y[0], max: y[1] });
    });
  }

  /** Make a point, or none, the active one. */
  go(point, { pointed = false } = {}) {
    if (point === this.active && !this.tip.hidden) return;
    this.active = point;
    if (point) this.tip.replaceChildren(...about(point));
    if (!pointed && point && this.outside(point)) this.show(this.full);
    this.mark();
  }

  /** Place the tip next to the active point; hide it while the point is outside the visible area. */
  placeTip() {
    this.tip.hidden = !this.active || this.outside(this.active);
    if (this.tip.hidden) return;
    const [left, top] = this.at(this.active);
    const style = this.tip.style;
    style.left = "0"; // measure it at full width
    style.left = `${Math.max(0, Math.min(left - 20, this.plot.width - this.tip.offsetWidth))}px`;
    style.top = `${top > HEIGHT / 2 ? top - this.tip.offsetHeight - 14 : top + 14}px`;
  }

  outside(point) {
    const [left, top] = this.at(point);
    return left < 0 || top < 0 || left > this.plot.width || top > HEIGHT;
  }

  /** Draw rings around the active, the chosen and the similar points, and place the tip. */
  mark() {
    if (!this.plot) return;
    const ring = (point, kind) => {
      const element = h("div", { class: `ring ${kind}`, "data-chunk": point.chunkId });
      const [left, top] = this.at(point);
      Object.assign(element.style, { left: `${left}px`, top: `${top}px` });
      return element;
    };
    const like = new Set(this.similar);
    const rings = this.points.filter((each) => like.has(each.chunkId)).map((each) => ring(each, "like"));
    if (this.shown) rings.push(ring(this.shown, "chosen"));
    if (this.active) rings.push(ring(this.active, "active"));
    for (const old of this.plot.over.querySelectorAll(".ring, .lines")) old.remove();
    this.plot.over.append(this.lines(like), ...rings);
    this.placeTip();
  }

  /** Create lines from the chosen point to the similar ones. */
  lines(like) {
    const [x1, y1] = this.shown ? this.at(this.shown) : [0, 0];
    const line = (point) => {
      const [x2, y2] = this.at(point);
      return svg("line", { x1, y1, x2, y2 });
    };
    return svg("svg", { class: "lines" }, ...this.points.filter((each) => like.has(each.chunkId)).map(line));
  }

  async choose(point) {
    this.shown = point;
    this.similar = [];
    this.mark();
    const found = h("div", { role: "status" }, h("p", { class: "small" }, "Searching\u2026"));
    this.panel.replaceChildren(...about(point), found);
    try {
      const wanted = { collection: this.collection, chunkId: point.chunkId, limit: SIMILAR };
      const { results } = await call("search-similar", wanted);
      if (this.shown !== point) return;
      this.similar = results.map((hit) => hit.chunkId);
      found.replaceChildren(...this.listed(results));
      this.mark();
    } catch (error) {
      found.replaceChildren(failure(error));
    }
  }

  listed(results) {
    if (!results.length) return [h("p", {}, "No other chunks.")];
    const known = new Map(this.points.map((point) => [point.chunkId, point]));
    const entry = (hit) => {
      const point = known.get(hit.chunkId);
      const place = hit.startLine ? `${hit.source}:${hit.startLine}` : hit.source;
      const name = hit.source.endsWith(hit.title) ? place : `${hit.title}, ${place}`;
      const go = () => point && this.go(point);
      const on = { focus: go, mouseenter: go, blur: () => this.go(null), mouseleave: () => this.go(null) };
      const button = h("button", { type: "button", class: "link", on }, name);
      button.addEventListener("click", () => {
        this.stage.focus();
        this.go(point);
        this.choose(point);
      });
      const aside = h("span", { class: "small" }, ` ${score(hit.score)}${point ? "" : ", not on the map"}`);
      return h("li", {}, point ? button : h("span", { class: "source" }, name), aside);
    };
    const on = results.filter((hit) => known.has(hit.chunkId)).length;
    return [
      h("p", { class: "small" }, `${plural(results.length, "similar chunk")}, ${count(on)} on the map`),
      h("ol", {}, ...results.map(entry)),
    ];
  }
}

/** Create the description of a point. */
function about({ title, source, excerpt }) {
  return [
    title && !source.endsWith(title) ? h("p", {}, h("strong", {}, title)) : null,
    h("p", { class: "small source" }, source),
    h("p", { class: "excerpt" }, excerpt),
  ].filter(Boolean);
}

/** Return the initial area: all points, with equal units on both axes. */
function frame(points, width, height) {
  const [x, y] = ["x", "y"].map((axis) => {
    const values = points.map((point) => point[axis]);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    return { middle: (least + most) / 2, size: most - least };
  });
  const unit = MARGIN * Math.max(x.size / width, y.size / height, 0.001 / width);
  const seen = ({ middle }, size) => [middle - (unit * size) / 2, middle + (unit * size) / 2];
  return { x: seen(x, width), y: seen(y, height) };
}

/** Draw the points of a series; a paths function of uPlot. */
function dots(plot, at) {
  const { ctx, bbox } = plot;
  const size = RADIUS * devicePixelRatio;
  const [xs, ys] = plot.data[at];
  ctx.save();
  ctx.fillStyle = plot.series[at].stroke(plot, at);
  ctx.globalAlpha = 0.75;
  for (let place = 0; place < xs.length; place += 1) {
    const [x, y] = [plot.valToPos(xs[place], "x", true), plot.valToPos(ys[place], "y", true)];
    if (x < bbox.left || y < bbox.top || x > bbox.left + bbox.width || y > bbox.top + bbox.height) continue;
    ctx.beginPath();
    ctx.arc(x, y, size, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
  return null;
}
