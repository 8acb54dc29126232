// The timeline: what happened to each node, with the plan's ghost behind it.

import { el, fillRow, keep, nodeLink, set, svg, table } from "./dom.js";
import { byName, clock, duration, plural } from "./words.js";

/** Rows of each pool until a person asks for all. */
const MOST_ROWS = 60;
const WIDTH = 1000;
const BAR = 20;
const CURVE = 120;
/** How the states of a move are drawn: the later the darker. */
const SHADES = {
  "wait-for-jobs-required": 1, "pod-deletion-required": 2, "drain-required": 2,
  "pod-restart-required": 3, "validation-required": 4, "uncordon-required": 4,
};

export function timelineView() {
  const pools = el("div");
  const empty = el("p");
  const key = el("p", { class: "note key" },
    swatch("s1", "waiting for jobs"), swatch("s2", "evicting pods"),
    swatch("s3", "changing the driver"), swatch("s4", "validating"),
    swatch("plan", "as planned before"));
  const root = el("section", { "aria-label": "Timeline" }, el("h1", { text: "Timeline" }), empty,
    key, pools);
  const all = new Set();
  let last = null;

  function update(state) {
    last = state;
    const groups = new Map();
    for (const bar of state.bars.values()) {
      if (!groups.has(bar.pool)) groups.set(bar.pool, []);
      groups.get(bar.pool).push(bar);
    }
    set(empty, { text: groups.size ? "" : "No node has moved to the driver that its pool wants, as"
      + " far as is known here, and no move is planned." });
    key.hidden = !groups.size;
    keep(pools, [...groups.keys()].sort(byName), (pool) => pool, makePool, (section, pool) => {
      fillPool(section, pool, groups.get(pool), state);
    });
  }

  function makePool(pool) {
    const section = el("section");
    const parts = {
      title: el("h2"),
      said: el("p"),
      curve: svg("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${CURVE}`, role: "img",
        preserveAspectRatio: "none" }),
      ticks: el("p", { class: "ticks", "aria-hidden": "true" }),
      rows: table(`Nodes of ${pool || "no pool"} by start`, ["Node", "State", "Start", "End", "Took",
        "Planned", "Time"]),
      more: el("p", { class: "more" }),
    };
    set(parts.rows.frame.firstChild, { class: "gantt" });
    section.append(parts.title, parts.said, parts.curve, parts.ticks, parts.rows.frame, parts.more);
    section.parts = parts;
    return section;
  }

  function fillPool(section, pool, bars, state) {
    const { parts } = section;
    const now = state.now();
    const range = rangeOf(bars, now);
    const version = bars.find((bar) => bar.target)?.target;
    set(parts.title, { text: version ? `${pool || "no pool"} to ${version}` : pool || "no pool" });
    const total = state.pools.find((each) => each.name === pool)?.counts.total || bars.length;
    set(parts.said, { text: summary(bars, total, now) });
    drawCurve(parts.curve, bars, total, range, now);
    keep(parts.ticks, ticks(range), (at) => at, (at) => el("span", {}),
      (tick, at) => set(tick, { text: clock(at, now) }));
    const sorted = bars.slice().sort((a, b) => startOf(a) - startOf(b) || byName(a.node, b.node));
    const kept = all.has(pool) ? sorted : chosen(sorted);
    keep(parts.rows.body, kept, (bar) => bar.node, () => makeRow(), (row, bar) => {
      fillRow(row, parts.rows.titles, [nodeLink(bar.node), stateOf(bar), bar.start ? clock(bar.start, now) : "",
        bar.end ? clock(bar.end, now) : "", tookOf(bar, now), plannedOf(bar, now)]);
      drawBar(row.lastChild.firstChild, bar, range, now);
    });
    showMore(parts.more, pool, bars.length, kept.length);
  }

  function showMore(more, pool, count, kept) {
    const said = kept < count ? `${kept} of ${count} nodes are listed: those that move or failed,`
      + " the last that ended and the next to start. " : "";
    if (more.dataset.said === said) return;
    more.dataset.said = said;
    more.replaceChildren(said);
    if (!said) return;
    const button = el("button", { type: "button", text: `Show all ${count}` });
    button.addEventListener("click", () => { all.add(pool); update(last); });
    more.append(button);
  }

  return { root, title: "Timeline", update };
}

function makeRow() {
  const row = el("tr");
  for (let index = 0; index < 6; index += 1) row.append(el("td"));
  row.append(el("td", { class: "time" }, svg("svg", { class: "bar", "aria-hidden": "true",
    viewBox: `0 0 ${WIDTH} ${BAR}`, preserveAspectRatio: "none" })));
  return row;
}

function startOf(bar) {
  return bar.start ?? bar.planned?.[0] ?? bar.end ?? 0;
}

const moves = (bar) => bar.start !== undefined && bar.end === undefined;

/** Return the bars to list of many: in order, those that matter now. */
function chosen(sorted) {
  if (sorted.length <= MOST_ROWS) return sorted;
  const ended = sorted.filter((bar) => bar.outcome === "done").sort((a, b) => b.end - a.end);
  const next = sorted.filter((bar) => bar.start === undefined && bar.end === undefined);
  const first = sorted.filter((bar) => moves(bar) || (bar.end && bar.outcome !== "done"));
  const left = Math.max(10, MOST_ROWS - first.length);
  const soon = next.slice(0, Math.max(Math.ceil(left / 2), left - ended.length));
  const kept = new Set([...first.slice(0, MOST_ROWS), ...soon,
    ...ended.slice(0, left - soon.length)]);
  return sorted.filter((bar) => kept.has(bar));
}

function stateOf(bar) {
  if (bar.outcome) return bar.outcome;
  if (bar.steps?.length) return bar.steps[bar.steps.length - 1][0];
  return bar.start === undefined ? "planned" : "started";
}

function tookOf(bar, now) {
  if (bar.start === undefined) return "";
  return bar.end ? duration(bar.end - bar.start) : `${duration(now - bar.start)} so far`;
}

function plannedOf(bar, now) {
  return bar.planned ? `${clock(bar.planned[0], now)} to ${clock(bar.planned[1], now)}` : "";
}

function rangeOf(bars, now) {
  const times = bars.flatMap((bar) => [bar.start, bar.end, ...(bar.planned || [])])
    .filter((at) => at !== undefined && at !== null);
  if (bars.some(moves)) times.push(now);
  const first = times.reduce((a, b) => Math.min(a, b));
  const end = times.reduce((a, b) => Math.max(a, b));
  return [first, Math.max(end, first + 60)];
}

function ticks([from, to]) {
  return [0, 1, 2, 3, 4].map((part) => Math.round(from + ((to - from) * part) / 4));
}

function summary(bars, total, now) {
  const done = bars.filter((bar) => bar.outcome === "done").length;
  const failed = bars.filter((bar) => bar.outcome === "failed").length;
  const moving = bars.filter(moves).length;
  const ends = bars.map((bar) => bar.planned?.[1]).filter(Boolean);
  const took = bars.filter((bar) => bar.outcome === "done" && bar.start !== undefined)
    .map((bar) => bar.end - bar.start).sort((a, b) => a - b);
  const parts = [`${done} of ${plural(total, "node")} done`];
  if (moving) parts.push(`${moving} in flight`);
  if (failed) parts.push(`${failed} failed`);
  if (took.length) parts.push(`a node took ${duration(took[Math.floor(took.length / 2)])} (median)`);
  if (ends.length) parts.push(`planned end ${clock(Math.max(...ends), now)}`);
  return `${parts.join("; ")}.`;
}

/** Draw how many nodes were done when, and the same as planned. */
function drawCurve(picture, bars, total, range, now) {
  const done = bars.filter((bar) => bar.outcome === "done").map((bar) => bar.end);
  const planned = bars.filter((bar) => bar.planned).map((bar) => bar.planned[1]);
  const before = Math.max(0, total - planned.length);
  const label = `Nodes done over time: ${done.length} of ${total}`
    + (planned.length ? `; the dashed line is the plan` : "");
  set(picture, { "aria-label": label });
  const first = bars.reduce((at, bar) => Math.min(at, bar.planned?.[0] ?? at), range[1]);
  const paths = [
    { name: "plan",
      d: planned.length ? stairs(planned, before, total, range, [first, range[1]]) : "" },
    { name: "done", d: stairs(done, 0, total, range, [range[0], Math.min(now, range[1])]) },
  ];
  keep(picture, paths.filter((path) => path.d), (path) => path.name,
    (path) => svg("path", { class: `curve-${path.name}` }),
    (node, path) => set(node, { d: path.d }));
}

function stairs(times, from, total, range, [begin, until]) {
  const y = (count) => (CURVE - 4 - ((CURVE - 8) * count) / Math.max(1, total)).toFixed(1);
  let count = from;
  let path = `M${x(begin, range)} ${y(count)}`;
  for (const at of times.slice().sort((a, b) => a - b)) {
    count += 1;
    path += `H${x(at, range)}V${y(count)}`;
  }
  return `${path}H${x(until, range)}`;
}

function x(at, [from, to]) {
  const part = Math.min(1, Math.max(0, (at - from) / (to - from)));
  return Number((part * WIDTH).toFixed(1));
}

function drawBar(picture, bar, range, now) {
  const parts = [];
  if (bar.planned) {
    parts.push({ key: "plan", class: "plan", from: bar.planned[0], to: bar.planned[1], y: 1,
      height: BAR - 2 });
  }
  const end = bar.end ?? now;
  const steps = bar.start === undefined ? [] : bar.steps || [];
  if (bar.start !== undefined && (!steps.length || steps[0][1] > bar.start)) {
    parts.push({ key: "start", class: "s1", from: bar.start, to: steps[0]?.[1] ?? end, y: 5,
      height: 10 });
  }
  steps.forEach(([state, at], index) => {
    parts.push({ key: `step${index}`, class: `s${SHADES[state] || 1}`, from: at,
      to: steps[index + 1]?.[1] ?? end, y: 5, height: 10, title: state });
  });
  if (bar.end !== undefined) {
    parts.push({ key: "end", class: bar.outcome === "failed" ? "failed" : "ended",
      from: bar.end, to: bar.end, y: 2, height: BAR - 4 });
  }
  keep(picture, parts, (part) => part.key, () => svg("rect", {}, svg("title")), (rect, part) => {
    const left = x(part.from, range);
    set(rect, { class: part.class, x: left, y: part.y, height: part.height,
      width: Math.max(3, x(part.to, range) - left) });
    set(rect.firstChild, { text: part.title
      ? `${part.title}: ${duration(part.to - part.from)}` : part.class });
  });
}

function swatch(name, text) {
  return el("span", {}, svg("svg", { class: "swatch bar", viewBox: "0 0 24 12",
    "aria-hidden": "true" }, svg("rect", { class: name, x: 1, y: 1, width: 22, height: 10 })), text);
}
