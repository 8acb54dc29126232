// Elements from plain text. Whatever comes from the cluster is only ever set as text or as an
// attribute with a fixed name, never as HTML; the server's policy forbids the latter.

const SVG = "http://www.w3.org/2000/svg";

/** Set text, class and other attributes; null or false removes one. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") {
      if (node.textContent !== value) node.textContent = value;
    } else if (value === null || value === undefined || value === false) {
      node.removeAttribute(name);
    } else if (node.getAttribute(name) !== String(value)) {
      node.setAttribute(name, value);
    }
  }
  return node;
}

/** Return a new element with attributes and children: elements or text. */
export function el(tag, attributes = {}, ...children) {
  const node = set(document.createElement(tag), attributes);
  node.append(...children.flat().filter((each) => each !== null && each !== ""));
  return node;
}

/** Return a new SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const node = set(document.createElementNS(SVG, tag), attributes);
  node.append(...children.flat());
  return node;
}

/** Return the link to a node's page. */
export function nodeLink(name) {
  return el("a", { href: nodeAddress(name), text: name });
}

export function nodeAddress(name) {
  return `#/node/${encodeURIComponent(name)}`;
}

/**
 * Make the children of a parent those of the rows, in order. A child stays the same element as long
 * as its key does, so that focus and selection stay where they are.
 */
export function keep(parent, rows, keyOf, make, fill) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const row of rows) {
    const key = String(keyOf(row));
    let child = old.get(key);
    if (child === undefined) {
      child = make(row);
      child.dataset.key = key;
    }
    old.delete(key);
    fill(child, row);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const child of old.values()) child.remove();
}

/** Return a table with a caption for screen readers, and its body. */
export function table(caption, titles) {
  const body = el("tbody");
  const head = el("tr", {}, titles.map(heading));
  const whole = el("table", {}, el("caption", { text: caption }), el("thead", {}, head), body);
  const frame = el("div", {
    class: "scroll", tabindex: "0", role: "region", "aria-label": caption,
  }, whole);
  return { frame, body, head, titles };
}

/** Return the head of a column; `keep` knows it by its title. */
export function heading(title) {
  return el("th", { scope: "col", text: title, "data-key": title });
}

/**
 * Fill a row's cells: text, or elements where they differ from what is there. A narrow window shows
 * each cell below the other with its title.
 */
export function fillRow(row, titles, cells) {
  while (row.children.length < cells.length) row.append(el("td"));
  cells.forEach((cell, index) => {
    const box = set(row.children[index], { "data-title": titles[index] });
    if (cell instanceof Node) {
      if (!box.firstChild || !box.firstChild.isEqualNode(cell)) box.replaceChildren(cell);
    } else {
      set(box, { text: cell });
    }
  });
}
