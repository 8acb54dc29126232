// The fleet: pools, a map with a field for each node, and the nodes to look at.

import { el, fillRow, keep, nodeAddress, nodeLink, set, table } from "./dom.js";
import { SIGNS, byName, classOf, duration, plural } from "./words.js";

const MOST_CARDS = 60;
const MOST_ROOMY = 1000;
/** Rows of the table of nodes to look at, until a person asks for all. */
const MOST_ROWS = 40;

export function fleetView() {
  const counts = el("ul", { class: "legend", "aria-label": "Show nodes by what they do" });
  const search = el("input", { type: "search", id: "search", autocomplete: "off" });
  const empty = el("p");
  const map = el("div", { class: "map" });
  const pools = table("Pools", ["Pool", "Driver", "Phase", "Done", "In flight", "Failed",
    "Unavailable", "Brake", "Because"]);
  const look = table("Nodes to look at", ["Node", "State", "For", "Waits for", "Who can end it",
    "Note"]);
  const more = el("p", { class: "more" });
  const hint = el("p", { class: "note screen", id: "map-hint",
    text: "Arrow keys move on the map, Enter opens a node." });
  const root = el("section", { "aria-label": "Fleet" },
    el("h1", { text: "Fleet" }), pools.frame,
    el("h2", { text: "Map" }),
    el("div", { class: "filters" }, counts,
      el("label", { for: "search", text: "Name has " }), search),
    empty, map, hint, el("h2", { text: "Nodes to look at" }), look.frame, more);
  const shown = { doing: "", all: false };
  const fields = new Map();
  let last = null;
  let layout = "";

  search.addEventListener("input", () => { layout = ""; update(last); });
  map.addEventListener("keydown", (event) => moveOnMap(event, map));
  map.addEventListener("focusin", (event) => {
    const field = event.target.closest(".cell");
    if (field) makeReachable(map, field);
  });

  function update(state) {
    if (!state) return;
    last = state;
    const nodes = [...state.nodes.values()];
    showPools(pools, state.pools);
    showCounts(nodes);
    const text = search.value.trim().toLowerCase();
    const chosen = nodes.filter((cell) => (!shown.doing || cell.doing === shown.doing)
      && cell.name.toLowerCase().includes(text));
    set(empty, { text: chosen.length ? "" : nothing(nodes.length) });
    showMap(state, chosen);
    showRows(state, chosen);
  }

  function showCounts(nodes) {
    const found = {};
    for (const cell of nodes) found[cell.doing] = (found[cell.doing] || 0) + 1;
    const listed = Object.keys(SIGNS).filter((doing) => found[doing] || doing === shown.doing);
    keep(counts, listed, (doing) => doing, (doing) => {
      const button = el("button", { type: "button" });
      button.addEventListener("click", () => {
        shown.doing = shown.doing === doing ? "" : doing;
        layout = "";
        update(last);
      });
      return el("li", {}, button);
    }, (item, doing) => {
      set(item.firstChild, { class: `kind ${classOf(doing)}`,
        "aria-pressed": String(shown.doing === doing),
        text: `${SIGNS[doing]} ${found[doing] || 0} ${doing}` });
    });
  }

  /** Show all fields anew if other nodes are shown; otherwise only those that changed. */
  function showMap(state, chosen) {
    const large = chosen.length <= MOST_CARDS;
    const names = chosen.map((cell) => `${cell.pool || ""}/${cell.name}`).sort(byName);
    const next = `${large}\n${names.join("\n")}`;
    if (next !== layout) {
      layout = next;
      layOut(chosen, large);
    } else {
      for (const name of state.changed) {
        const cell = state.nodes.get(name);
        const field = fields.get(name);
        if (cell && field) fillField(field, cell, large);
      }
    }
  }

  function layOut(chosen, large) {
    const groups = new Map();
    for (const cell of chosen) {
      const pool = cell.pool || "";
      if (!groups.has(pool)) groups.set(pool, []);
      groups.get(pool).push(cell);
    }
    const stale = new Set(fields.keys());
    keep(map, [...groups.keys()].sort(byName), (pool) => pool,
      () => el("section", {}, el("h3"), el("ul", { class: "grid" })),
      (section, pool) => {
        const cells = groups.get(pool).sort((a, b) => byName(a.name, b.name));
        const name = pool || "no pool";
        set(section.firstChild, { text: `${name}: ${plural(cells.length, "node")}` });
        set(section.lastChild, { class: gridClass(chosen.length), "aria-label": name,
          "aria-describedby": "map-hint" });
        keep(section.lastChild, cells, (cell) => cell.name, () => el("li", {},
          el("a", { class: "cell", tabindex: "-1" }, el("span", { class: "sign" }),
            el("span", { class: "name" }), el("span", { class: "state" }))),
        (item, cell) => {
          fields.set(cell.name, item.firstChild);
          stale.delete(cell.name);
          fillField(item.firstChild, cell, large);
        });
      });
    for (const name of stale) fields.delete(name);
    const first = map.querySelector(".cell");
    if (first && !map.querySelector('.cell[tabindex="0"]')) set(first, { tabindex: "0" });
  }

  function showRows(state, chosen) {
    const order = Object.keys(SIGNS);
    const rows = chosen
      .filter((cell) => (cell.doing !== "done" && cell.doing !== "not managed")
        || cell.note)
      .sort((a, b) => order.indexOf(a.doing) - order.indexOf(b.doing) || byName(a.name, b.name));
    const kept = shown.all ? rows : rows.slice(0, MOST_ROWS);
    const now = state.now();
    keep(look.body, kept, (cell) => cell.name, () => el("tr"), (row, cell) => {
      const wait = cell.wait;
      fillRow(row, look.titles, [
        nodeLink(cell.name),
        stateOf(cell),
        since(cell, now),
        wait ? `${wait.code}: ${wait.detail}` : "",
        wait ? wait.who || "" : "",
        cell.note || "",
      ]);
    });
    look.frame.hidden = !rows.length;
    showMore(rows.length, kept.length);
  }

  function showMore(all, kept) {
    if (kept < all) {
      const button = el("button", { type: "button", text: `Show all ${all}` });
      button.addEventListener("click", () => { shown.all = true; update(last); });
      const said = `${kept} of ${all} nodes are listed. `;
      if (more.dataset.said !== said) more.replaceChildren(said, button);
      more.dataset.said = said;
    } else {
      more.dataset.said = "";
      set(more, { text: all ? "" : "No node waits, is in flight or has failed." });
    }
  }

  return { root, title: "Fleet", update };
}

/** Return how large the fields are, so that the whole map fits a window. */
function gridClass(count) {
  if (count <= MOST_CARDS) return "grid large";
  return count <= MOST_ROOMY ? "grid" : "grid dense";
}

function nothing(all) {
  return all ? "No node is like that." : "Kubernetes shows no Node with GPUs yet.";
}

function stateOf(cell) {
  const text = `${SIGNS[cell.doing]} ${cell.state || cell.doing}`;
  return cell.doing === "failed" ? el("strong", { class: "problem", text }) : text;
}

function since(cell, now) {
  const at = cell.wait ? cell.wait.since : cell.since;
  return at ? duration(now - at) : "";
}

function fillField(field, cell, large) {
  const note = cell.note || "";
  const wait = cell.wait ? `${cell.wait.code}: ${cell.wait.detail}` : "";
  const state = cell.state || cell.doing;
  const words = [state, wait, note, cell.driver ? `driver ${cell.driver}` : ""];
  const label = `${cell.name}: ${words.filter(Boolean).join("; ")}`;
  set(field, { href: nodeAddress(cell.name), title: label, "aria-label": label,
    class: `cell ${classOf(cell.doing)}${note ? " noted" : ""}` });
  const [sign, name, below] = field.children;
  set(sign, { text: SIGNS[cell.doing] });
  set(name, { text: large ? cell.name : "" });
  set(below, { text: large ? [cell.wait ? cell.wait.code : state, note].filter(Boolean).join("; ")
    : "" });
}

function showPools({ body, titles }, pools) {
  keep(body, pools, (pool) => pool.name, () => el("tr"), (row, pool) => {
    const { counts } = pool;
    const waits = Object.entries(pool.waits || {}).map(([code, count]) => `${count} ${code}`);
    const because = [pool.because, waits.length ? `waits: ${waits.join(", ")}` : ""];
    fillRow(row, titles, [pool.name, pool.version || "none", pool.phase, `${counts.done}/${counts.total}`,
      String(counts.in_flight), String(counts.failed), `${counts.unavailable} of ${counts.limit}`,
      pool.brake, because.filter(Boolean).join("; ")]);
  });
  if (!pools.length) {
    keep(body, ["none"], (key) => key, () => el("tr", {}, el("td", { colspan: "9",
      text: "There is no pool: no policy selects a node with GPUs." })), () => {});
  }
}

function makeReachable(map, field) {
  for (const each of map.querySelectorAll('.cell[tabindex="0"]')) set(each, { tabindex: "-1" });
  set(field, { tabindex: "0" });
}

/** Move the focus on the map as the arrow keys say. */
function moveOnMap(event, map) {
  const fields = [...map.querySelectorAll(".cell")];
  const at = fields.indexOf(document.activeElement);
  if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: fields.length - 1 }[event.key];
  let next = step === undefined ? undefined : fields[step];
  if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    next = beside(fields, at, event.key === "ArrowDown" ? 1 : -1);
  } else if (step === undefined) {
    return;
  }
  event.preventDefault();
  if (next) {
    makeReachable(map, next);
    next.focus();
  }
}

/** Return the field above or below, in the row next to this one. */
function beside(fields, at, direction) {
  const from = fields[at].getBoundingClientRect();
  let best;
  let distance = Infinity;
  let row = null;
  for (let index = at + direction; index >= 0 && index < fields.length; index += direction) {
    const box = fields[index].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 2) continue;
    if (row === null) row = box.top;
    if (Math.abs(box.top - row) >= 2) break;
    if (Math.abs(box.left - from.left) < distance) {
      best = fields[index];
      distance = Math.abs(box.left - from.left);
    }
  }
  return best;
}
