// Events: what happened, the last first.

import { el, fillRow, keep, nodeLink, set, table } from "./dom.js";
import { dateTime } from "./words.js";

const MOST_ROWS = 100;

export function eventsView(_about, _state, show) {
  const search = el("input", { type: "search", id: "event-search", autocomplete: "off" });
  const rows = table("Events, the last first", ["Time", "By", "Node", "What happened"]);
  const said = el("p", { role: "status" });
  const more = el("button", { type: "button", text: "Show more" });
  const root = el("section", { "aria-label": "Events" }, el("h1", { text: "Events" }),
    el("div", { class: "filters" }, el("label", { for: "event-search", text: "Has " }), search),
    said, rows.frame, more);
  let most = MOST_ROWS;
  search.addEventListener("input", show);
  more.addEventListener("click", () => { most = Infinity; show(); });

  function update(state) {
    const text = search.value.trim().toLowerCase();
    const found = state.events.filter((event) => `${event.writer} ${event.node} ${event.message}`
      .toLowerCase().includes(text));
    const kept = found.slice(0, most);
    set(said, { text: found.length
      ? `${kept.length} of ${found.length}; sluice events has those of 30 days.`
      : "No event is known here." });
    more.hidden = kept.length === found.length;
    rows.frame.hidden = !kept.length;
    keep(rows.body, kept, (event) => event.number, () => el("tr"), (row, event) => {
      fillRow(row, rows.titles, [dateTime(event.at), event.writer,
        event.node ? nodeLink(event.node) : "", event.message]);
    });
  }

  return { root, title: "Events", update };
}
