/** What the gateway counts, read from Prometheus' text format. */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const CALLS = "ability_search_gateway_tool_calls_total";
const SECONDS = "ability_search_gateway_tool_call_seconds";

/** For each tool its calls, failures, and latencies in milliseconds; they are estimates by buckets. */
export function toolCalls(text) {
  const tools = new Map();
  const of = (name) => {
    if (!tools.has(name)) tools.set(name, { name, calls: 0, failures: 0, seconds: 0, buckets: [] });
    return tools.get(name);
  };
  for (const { name, labels, value } of samples(text)) {
    if (name === CALLS) {
      of(labels.tool).calls += value;
      if (labels.code !== "ok") of(labels.tool).failures += value;
    }
    if (name === `${SECONDS}_sum`) of(labels.tool).seconds = value;
    if (name === `${SECONDS}_bucket`) of(labels.tool).buckets.push([number(labels.le), value]);
  }
  return [...tools.values()].map(({ buckets, seconds, ...tool }) => ({
    ...tool,
    mean: (1000 * seconds) / Math.max(1, tool.calls),
    median: 1000 * quantile(buckets, 0.5),
    high: 1000 * quantile(buckets, 0.95),
  }));
}

function* samples(text) {
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(LABEL)) labels[name] = value;
    yield { name: found[1], labels, value: number(found[3]) };
  }
}

const number = (text) => (text === "+Inf" ? Infinity : Number(text));

/** As histogram_quantile() of Prometheus: linear within a bucket, the last bound beyond it. */
function quantile(buckets, share) {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (!total) return 0;
  const wanted = share * total;
  let [low, before] = [0, 0];
  for (const [bound, seen] of buckets) {
    if (seen >= wanted) {
      return bound === Infinity ? low : low + ((bound - low) * (wanted - before)) / (seen - before);
    }
    [low, before] = [bound, seen];
  }
  return low;
}
