/** The metrics of the gateway, parsed from the Prometheus text format. */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const CALLS = "ability_search_gateway_tool_calls_total";
const SECONDS = "ability_search_gateway_tool_call_seconds";
const REQUESTS = "ability_search_gateway_requests_in_flight";
const STREAMS = "ability_search_gateway_streams_open";

/** Return calls, failures, seconds and buckets by tool, and the current requests and streams. */
export function read(text) {
  const [tools, gauges] = [new Map(), {}];
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
    if (name === REQUESTS) gauges.requests = value;
    if (name === STREAMS) gauges.streams = value;
  }
  return { tools, ...gauges };
}

/** Return the sum over all tools. */
export function total(tools) {
  const sum = { calls: 0, failures: 0, seconds: 0, buckets: [] };
  for (const { calls, failures, seconds, buckets } of tools.values()) {
    sum.calls += calls;
    sum.failures += failures;
    sum.seconds += seconds;
    sum.buckets = buckets.map(([bound, seen], place) => [bound, seen + (sum.buckets[place]?.[1] ?? 0)]);
  }
  return sum;
}

/** Return the difference of two readings; after a restart of the gateway, the later reading. */
export function since(before, now) {
  if (!before || before.calls > now.calls) return now;
  const seen = (place) => before.buckets[place]?.[1] ?? 0;
  return {
    ...now,
    calls: now.calls - before.calls,
    failures: now.failures - before.failures,
    seconds: now.seconds - before.seconds,
    buckets: now.buckets.map(([bound, value], place) => [bound, value - seen(place)]),
  };
}

/** Return latencies in ms, `null` without calls; median and p95 (`high`) are bucket estimates. */
export function latencies({ calls, seconds, buckets }) {
  if (!calls) return { mean: null, median: null, high: null };
  const [median, high] = [0.5, 0.95].map((share) => 1000 * quantile(buckets, share));
  return { mean: (1000 * seconds) / calls, median, high };
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

/** Estimate a quantile like Prometheus' histogram_quantile(): linear within a bucket. */
function quantile(buckets, share) {
  const wanted = share * (buckets.at(-1)?.[1] ?? 0);
  let [low, before] = [0, 0];
  for (const [bound, seen] of buckets) {
    if (seen > before && seen >= wanted) {
      return bound === Infinity ? low : low + ((bound - low) * (wanted - before)) / (seen - before);
    }
    [low, before] = [bound, seen];
  }
  return low;
}
