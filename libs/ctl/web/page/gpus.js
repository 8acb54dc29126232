// GPUs: counts by product and health, and those that are not healthy.

import { el, fillRow, heading, keep, nodeLink, set, table } from "./dom.js";
import { byName } from "./words.js";

const HEALTHS = ["ok", "degraded", "failed", "unknown"];

export function gpusView() {
  const counts = table("GPUs by product and health", ["Product", ...HEALTHS, "All"]);
  const sick = table("GPUs that are not healthy", ["Node", "GPU", "Product", "Health", "Because",
    "What to do"]);
  const said = el("p");
  const root = el("section", { "aria-label": "GPUs" }, el("h1", { text: "GPUs" }), counts.frame,
    el("h2", { text: "Not healthy" }), said, sick.frame);

  function update(state) {
    const { gpus } = state;
    const others = [...new Set(Object.values(gpus.products).flatMap(Object.keys))]
      .filter((health) => !HEALTHS.includes(health)).sort();
    const columns = [...HEALTHS, ...others];
    keep(counts.head, ["Product", ...columns, "All"], (title) => title,
      heading, () => {});
    const products = Object.keys(gpus.products).sort(byName);
    keep(counts.body, products, (product) => product, () => el("tr"), (row, product) => {
      const found = gpus.products[product];
      const all = Object.values(found).reduce((a, b) => a + b, 0);
      fillRow(row, ["Product", ...columns, "All"], [product, ...columns.map((health) => String(found[health] || 0)), String(all)]);
    });
    counts.frame.hidden = !products.length;
    sick.frame.hidden = !gpus.sick.length;
    set(said, { text: told(gpus, products.length) });
    keep(sick.body, gpus.sick, (gpu) => `${gpu.node}/${gpu.index}`, () => el("tr"), (row, gpu) => {
      fillRow(row, sick.titles, [nodeLink(gpu.node), String(gpu.index), gpu.product,
        gpu.health === "failed" ? el("strong", { class: "problem", text: "failed" }) : gpu.health,
        gpu.because || "", gpu.remedy || ""]);
    });
  }

  return { root, title: "GPUs", update };
}

function told(gpus, products) {
  if (!products) return "Kubernetes shows no GPU: no discovery agent has reported one.";
  if (!gpus.sick.length) return "Every GPU with a verdict is healthy.";
  return gpus.sick.length < gpus.sick_in_all
    ? `${gpus.sick.length} of ${gpus.sick_in_all} are listed; sluice gpus lists all.` : "";
}
