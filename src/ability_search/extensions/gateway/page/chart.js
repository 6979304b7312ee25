/** Plots by uPlot. Each has a text alternative and is shown next to its numbers. */

import { decimal, h } from "./dom.js";
import uPlot from "./vendor/uPlot.esm.js";

const HEIGHT = 180;
const FONT = "12px system-ui, sans-serif";
const STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const dark = matchMedia("(prefers-color-scheme: dark)");

/**
 * Create a uPlot with `draw(element, width, color)` while the element is visible, and again when its
 * width or the theme changes; `color(name)` reads the style sheet. Returns a function that returns
 * the current uPlot.
 */
export function drawing(element, draw) {
  let drawn = null;
  let width = 0;
  const redraw = () => {
    drawn?.destroy();
    drawn = width ? draw(element, width, color()) : null;
  };
  new ResizeObserver(([{ contentRect }]) => {
    if (Math.floor(contentRect.width) === width) return;
    width = Math.floor(contentRect.width);
    dark.removeEventListener("change", redraw);
    if (width) dark.addEventListener("change", redraw);
    redraw();
  }).observe(element);
  return () => drawn;
}

function color() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

/**
 * Create a plot of series over one axis, with the values at the pointer below it. Returns its element
 * and `update()`, which draws new data.
 *
 * `read()` returns the data in the format of uPlot. A series has a `label`, the name of a `color`, and
 * optionally `value(number, index)`, `paths`, `fill` (opacity in hexadecimal) and the `scale` right.
 */
export function plot(label, read, { x, series, y = {} }) {
  const element = h("div", { class: "chart", role: "img", "aria-label": label });
  const make = (place, width, color) =>
    new uPlot(
      {
        width,
        height: HEIGHT,
        // Half of the last label of the axis is beside the plot.
        padding: [12, 28, 0, 0],
        scales: { x: { time: Boolean(x.time), range: x.range }, y: fromZero, right: fromZero },
        axes: axes(x, series, y, color),
        series: [told(x), ...series.map((each) => line(each, color))],
        cursor: { drag: { setScale: false }, points: { size: 7 } },
      },
      read(),
      place,
    );
  const drawn = drawing(element, make);
  return { element, update: () => drawn()?.setData(read()) };
}

const fromZero = { range: (_, __, most) => [0, 1.05 * Math.max(1, most ?? 0)] };

function axes(x, series, { value = decimal, whole = false }, color) {
  const style = {
    stroke: color("faint"),
    font: FONT,
    grid: { stroke: color("line"), width: 1 },
    ticks: { stroke: color("line"), width: 1, size: 4 },
  };
  const values = (_, ticks) => ticks.map((tick) => (tick === null ? "" : value(tick)));
  const sides = [{ ...style, scale: "y", size: 60, values, incrs: whole ? STEPS : undefined }];
  if (series.some((each) => each.scale === "right")) {
    sides.push({ ...sides[0], scale: "right", side: 1, grid: { show: false } });
  }
  return [{ ...style, space: 60, grid: { show: false } }, ...sides];
}

const told = ({ label, value }) => ({ label, value: (_, number, __, index) => shown(value, number, index) });

function line({ label, color: name, value, scale: own = "y", paths, fill = false, dash }, color) {
  const stroke = color(name);
  return {
    label,
    scale: own,
    stroke,
    dash,
    width: 2,
    fill: fill ? `${stroke}${fill}` : undefined,
    paths,
    points: { show: false },
    value: (_, number, __, index) => shown(value, number, index),
  };
}

const shown = (value, number, index) =>
  number === null || number === undefined ? "\u2013" : value ? value(number, index) : String(number);

/** Return the paths of adjacent bars that start at their x. */
export const bars = () => uPlot.paths.bars({ size: [1, Infinity], align: 1, gap: 1 });
