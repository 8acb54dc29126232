// Follow the server's changes, and show the view that the address names.

import { set, el, keep } from "./dom.js";
import { dateTime, duration } from "./words.js";
import { fleetView } from "./fleet.js";
import { timelineView } from "./timeline.js";
import { gpusView } from "./gpus.js";
import { eventsView } from "./events.js";
import { nodeView } from "./node.js";

const VIEWS = {
  fleet: fleetView, timeline: timelineView, gpus: gpusView, events: eventsView, node: nodeView,
};
const MOST_EVENTS = 500;
/** Seconds without a word up to which a source is current: the API server confirms each minute. */
const CURRENT = 90;

/** What the server has said. */
const state = {
  nodes: new Map(), bars: new Map(), pools: [], events: [], sources: [], at: 0,
  gpus: { products: {}, sick: [], sick_in_all: 0 },
  /** Names of nodes that changed since the last time the view was shown. */
  changed: new Set(),
  known: false,
  seenAt: 0,
  eventNumber: 0,
  /** The server's time now, in Unix seconds. */
  now: () => state.at + (performance.now() - state.seenAt) / 1000,
};

let view = null;
let waiting = false;

function take(change) {
  if (change.whole) {
    for (const name of state.nodes.keys()) state.changed.add(name);
    state.nodes.clear();
    state.bars.clear();
    state.events = [];
  }
  for (const cell of change.nodes || []) {
    state.nodes.set(cell.name, cell);
    state.changed.add(cell.name);
  }
  for (const name of change.gone || []) {
    state.nodes.delete(name);
    state.changed.add(name);
  }
  for (const bar of change.bars || []) {
    state.bars.set(bar.node, bar);
    state.changed.add(bar.node);
  }
  for (const name of change.barless || []) {
    state.bars.delete(name);
    state.changed.add(name);
  }
  if (change.pools) state.pools = change.pools;
  if (change.gpus) state.gpus = change.gpus;
  for (const event of change.events || []) {
    state.eventNumber += 1;
    state.events.unshift({ number: state.eventNumber, ...event });
  }
  state.events.length = Math.min(state.events.length, MOST_EVENTS);
  state.sources = change.sources || [];
  state.at = change.at;
  state.seenAt = performance.now();
  state.known = true;
  show();
}

function connect() {
  const stream = new EventSource("/api/changes");
  const link = document.getElementById("link");
  stream.addEventListener("open", () => set(link, { text: "live", class: "live" }));
  stream.addEventListener("message", (message) => take(JSON.parse(message.data)));
  stream.addEventListener("error", () => {
    const since = state.known ? ` What you see is from ${dateTime(state.at)}.` : "";
    set(link, { text: `no connection to sluice web.${since}`, class: "lost" });
    // The browser connects again by itself unless the server refused the request.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  });
}

/** Show changes once for each frame. */
function show() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (view && state.known) {
      view.update(state);
      state.changed.clear();
    }
    showSources();
  });
}

function showSources() {
  keep(document.getElementById("sources"), state.sources, (source) => source.gives,
    () => el("li"), (item, source) => set(item, { text: told(source),
      class: source.problem ? "problem" : null }));
  if (state.known) set(document.getElementById("seen"), { text: `As of ${dateTime(state.at)}.` });
}

function told(source) {
  const isRead = source.age !== null && source.age !== undefined;
  const last = isRead ? `last confirmed ${duration(source.age)} ago` : "not read yet";
  const behind = Object.entries(source.behind || {})
    .filter(([, seconds]) => seconds >= 30)
    .map(([name, seconds]) => `${name} ${duration(seconds)}`).join(", ");
  const late = behind ? `; its own sources were current before: ${behind}` : "";
  return source.problem
    ? `! ${source.gives}: not from ${source.name}${isRead ? `, ${last}` : ""}: ${source.problem}`
    : `${source.gives}: from ${source.name}, ${isRead && source.age <= CURRENT ? "current" : last}`
      + late;
}

/** Show the view of the address; a new one gets the focus, so that it is read from its start. */
function route(isFirst) {
  const [, name, argument] = location.hash.split("/");
  const found = Object.hasOwn(VIEWS, name) ? name : "fleet";
  const main = document.getElementById("main");
  let about = "";
  try {
    about = decodeURIComponent(argument || "");
  } catch {
    about = argument;
  }
  view = VIEWS[found](about, state, show);
  main.replaceChildren(view.root);
  for (const link of document.querySelectorAll("nav a")) {
    const isCurrent = link.getAttribute("href") === `#/${found}`;
    set(link, { "aria-current": isCurrent ? "page" : null });
  }
  document.title = `${view.title} · Sluice`;
  for (const node of state.nodes.keys()) state.changed.add(node);
  show();
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
window.addEventListener("hashchange", () => route(false));
route(true);
connect();
// Durations go on while nothing changes.
setInterval(show, 5000);
