/** Bars for table cells, shown next to their numbers and hidden from screen readers. */

import { svg } from "./dom.js";

const HEIGHT = 12;

function plot(width, height, ...marks) {
  return svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      class: "plot",
      "aria-hidden": "true",
    },
    ...marks,
  );
}

function rect(from, to, kind, title) {
  const box = { x: from, y: 1, width: Math.max(0.4, to - from), height: HEIGHT - 2, class: kind };
  return svg("rect", box, title ? svg("title", {}, title) : null);
}

/** Create a bar from `from` to `to` on a scale that ends at `most`. */
export function bar(from, to, most, kind = "value") {
  const at = (value) => (most > 0 ? (100 * value) / most : 0);
  const [low, high] = [at(Math.min(from, to)), at(Math.max(from, to))];
  return plot(100, HEIGHT, rect(0, 100, "track"), rect(low, high, kind));
}

/** Create a bar of minimum, mean and maximum on a scale that ends at `end`. */
export function range(least, mean, most, end) {
  const at = (value) => (end > 0 ? (100 * value) / end : 0);
  return plot(
    100,
    HEIGHT,
    rect(0, 100, "track"),
    rect(at(least), at(most), "span"),
    rect(Math.max(0, at(mean) - 0.6), at(mean) + 0.6, "mean"),
  );
}
