/** Groups of map points by colour: one colour per source or per folder. */

const COLORS = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];

/** Return groups with name, colour name and points; the largest first, the remainder last. */
export function groupsOf(points) {
  const folders = (source) => source.split("/").slice(0, -1);
  const deepest = Math.max(...points.map(({ source }) => folders(source).length));
  const within = (depth) => (source) => folders(source).slice(0, depth).join("/") || "no folder";
  const keys = [(source) => source, ...Array.from({ length: deepest }, (_, depth) => within(depth + 1))];
  const ways = keys.map((key) => coloured(points, key));
  return ways.reduce((best, way) => (told(way, points) > told(best, points) ? way : best));
}

function coloured(points, key) {
  const groups = new Map();
  for (const point of points) {
    const name = key(point.source);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(point);
  }
  const sorted = [...groups].sort(([one, a], [other, b]) => b.length - a.length || (one < other ? -1 : 1));
  const rest = sorted.slice(COLORS.length);
  const named = COLORS.slice(0, sorted.length).map((color, place) => {
    const [name, own] = sorted[place];
    return { name, color, points: own };
  });
  if (!rest.length) return named;
  const name = rest.length === 1 ? rest[0][0] : `${rest.length} others`;
  return [...named, { name, color: "rest", points: rest.flatMap(([, own]) => own) }];
}

/** Return the entropy of the groups, in nats. */
function told(groups, points) {
  const shares = groups.map((group) => group.points.length / points.length);
  return -shares.reduce((sum, share) => sum + share * Math.log(share), 0);
}
