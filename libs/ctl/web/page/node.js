// One node: its state, why it waits and who can end that, its proof, GPUs and events.

import { el, set, table, fillRow } from "./dom.js";
import { dateTime, duration } from "./words.js";

const AGAIN_SECONDS = 10;
const SOONEST_SECONDS = 1;
/** Conditions that are as they should be, which nobody looks for. */
const QUIET = ["Ready=True", "MemoryPressure=False", "DiskPressure=False", "PIDPressure=False",
  "NetworkUnavailable=False"];

export function nodeView(name, _state, show) {
  const problem = el("p", { class: "problem", role: "status" });
  const content = el("div");
  const root = el("section", { "aria-label": `Node ${name}` },
    el("p", {}, el("a", { href: "#/fleet", text: "← Fleet" })), el("h1", { text: name }), problem,
    content);
  let askedAt = -Infinity;
  let asking = false;
  let stale = true;
  let story = "";

  async function ask() {
    asking = true;
    stale = false;
    askedAt = performance.now();
    try {
      const answer = await fetch(`/api/node?name=${encodeURIComponent(name)}`);
      const text = await answer.text();
      set(problem, { text: answer.ok ? "" : text.trim() });
      if (answer.ok) tell(JSON.parse(text));
    } catch {
      set(problem, { text: "sluice web does not answer; what follows is from before" });
    } finally {
      asking = false;
    }
    if (stale) setTimeout(show, SOONEST_SECONDS * 1000);
  }

  /** Show the story; the page stays as it is if nothing but its age changed. */
  function tell(told) {
    const { at, ...rest } = told;
    const now = JSON.stringify(rest);
    if (now === story) return;
    story = now;
    content.replaceChildren(...parts(told, at));
  }

  function update(state) {
    stale = stale || state.changed.has(name);
    const passed = (performance.now() - askedAt) / 1000;
    if (!asking && ((stale && passed >= SOONEST_SECONDS) || passed >= AGAIN_SECONDS)) ask();
    else if (stale && !asking) setTimeout(show, SOONEST_SECONDS * 1000);
  }

  return { root, title: name, update };
}

function parts(story, at) {
  const answer = story.node;
  return [
    el("p", { class: "headline", text: headline(answer) }),
    facts(whyFacts(answer.why, at)),
    ...diagnoses(story.diagnoses),
    el("h2", { text: "State" }),
    facts(stateFacts(answer, story.note, at)),
    el("h2", { text: "Proof" }),
    ...proof(story.proof),
    ...listing("GPUs", ["GPU", "Product", "Memory", "Health", "Because", "What to do", "MIG"],
      story.gpus.map((gpu) => [String(gpu.index), gpu.product,
        gpu.memory_mib ? `${Math.round(gpu.memory_mib / 1024)} GiB` : "?", gpu.health, gpu.because,
        gpu.remedy, gpu.mig])),
    ...history(answer.why?.history || [], answer.why?.history_at || []),
    ...listing("Last events of Sluice", ["Time", "By", "What happened"], story.happened.slice()
      .reverse().map((event) => [dateTime(event.at), event.writer, event.message])),
    ...listing("Events of Kubernetes", ["Time", "Reason", "Message"], answer.events.slice()
      .reverse().map((event) => [event.at, event.name,
        event.is_over ? `earlier: ${event.text}` : event.text])),
    ...listing("Conditions", ["Since", "Condition", "Message"], answer.conditions
      .filter((each) => !QUIET.includes(each.name)).map((each) => [each.at, each.name, each.text])),
    ...sources(answer.sources),
  ];
}

function headline(answer) {
  const { why, node } = answer;
  if (why?.in_place) return "✓ As its policy wants it.";
  if (why?.wait) return `◌ Waits: ${why.wait.code}.`;
  if (why) return `▶ In flight: ${why.state || "no state"}.`;
  return `State: ${node.state || "no upgrade state"}.`;
}

function whyFacts(why, at) {
  if (!why) return [];
  const { wait } = why;
  const waits = wait ? [
    ["Because", wait.detail],
    ["Since", `${dateTime(wait.since)}, ${duration(at - wait.since)} ago`],
    ["Ends at the latest", wait.until ? `${dateTime(wait.until)}, in ${duration(wait.until - at)}`
      : "without limit"],
    ["Ended by", wait.who || "itself"],
  ] : [];
  return [...waits, ["Containers lack GPUs", why.no_gpus || ""],
    ["Container runtime", why.container_runtime || ""]];
}

function stateFacts(answer, note, at) {
  const { node } = answer;
  const since = node.since ? `, for ${duration(at - node.since)}` : "";
  return [
    ["Pool", answer.why?.pool || node.pool],
    ["State", `${node.state || "none"}${since}`],
    ["Driver", node.driver],
    ["Note", note],
    ["Skipped", node.skipped ? "a person keeps it out of upgrades" : ""],
  ];
}

function diagnoses(found) {
  return found.length ? [facts(found.map((each) => [
    `${each.is_note ? "Note" : "Diagnosis"} ${each.name}`, each.text]))] : [];
}

function proof(found) {
  if (!found) return [el("p", { text: "No validation is recorded." })];
  const verdict = found.passed ? "✓ passed" : "✕ failed";
  const boot = found.of_this_boot ? "in this boot"
    : "in an earlier boot, so that it proves nothing now";
  const said = `Validation ${verdict} at ${dateTime(found.at)}, ${boot}`
    + `${found.driver ? `, with driver ${found.driver}` : ""}.`;
  return [el("p", { text: said }), ...listing("", ["Check", "Result", "Message"],
    found.checks.map((each) => [each.name, each.passed ? "✓ passed" : "✕ failed", each.text]),
    "Checks of the validation")];
}

function history(steps, times) {
  if (!steps.length) return [];
  return [el("h2", { text: "History" }),
    el("ol", { class: "history" }, steps.map((step, index) =>
      el("li", { text: times[index] ? `${dateTime(times[index])} ${step}` : step })))];
}

/** Return a heading and a table of the columns that have text; nothing where there are no rows. */
function listing(title, titles, rows, caption = title) {
  if (!rows.length) return [];
  const used = titles.map((_, index) => index).filter((index) => rows.some((row) => row[index]));
  const found = table(caption, used.map((index) => titles[index]));
  for (const cells of rows) {
    const row = el("tr");
    fillRow(row, found.titles, used.map((index) => cells[index]));
    found.body.append(row);
  }
  return [title ? el("h2", { text: title }) : "", found.frame];
}

function facts(pairs) {
  const list = el("dl");
  for (const [name, text] of pairs) {
    if (text) list.append(el("div", {}, el("dt", { text: name }), el("dd", { text })));
  }
  return list;
}

function sources(found) {
  return [el("ul", { class: "note" }, found.map((source) => el("li", {
    class: source.problem ? "problem" : null,
    text: source.problem ? `! ${source.gives}: not from ${source.name}: ${source.problem}`
      : `${source.gives}: from ${source.name}`,
  })))];
}
