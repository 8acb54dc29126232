// Words for people: durations, times, and the sign of what each node does.

/** What nodes do, what to look at first, each with a sign that tells it apart without colour. */
export const SIGNS = {
  "failed": "✕",
  "in flight": "▶",
  "waiting": "◌",
  "skipped": "–",
  "not managed": "?",
  "cordoned": "⊘",
  "done": "✓",
};

/** Return the class of what shows a node that does this: a word without blanks. */
export function classOf(doing) {
  return doing.replaceAll(" ", "-");
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** Return `45 s`, `12 min`, `2 h 5 min`: two units at most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${unit}`);
    else if (parts.length) break;
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

/** Return the date and time of day of Unix seconds. */
export function dateTime(at) {
  return new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ");
}

/** Return the time of day; with its date if it is on another day than `beside`. */
export function clock(at, beside = at) {
  const [day, time] = dateTime(at).split(" ");
  return day === dateTime(beside).split(" ")[0] ? time.slice(0, 5) : `${day} ${time.slice(0, 5)}`;
}

export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Compare names so that node-9 is before node-10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
