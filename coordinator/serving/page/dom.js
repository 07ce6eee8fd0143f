// Building and updating elements. Text goes in as text, never as markup: the policy of the page
// (require-trusted-types-for) makes the browser refuse anything else.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else setAttribute(node, name, value);
  }
  node.append(...children);
  return node;
}

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// null, undefined and false take the attribute away; writes only what changes.
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// Make the children of `parent` those of `items`, in order. An element lives as long as its key
// does, so the focus and a running transition stay where they are.
export function keyed(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key;
    }
    old.delete(key);
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

// A bar of parts: [{kind, share in percent}], with a name and a value for those who can't see it.
export function makeBar(label) {
  return make("div", { class: "track", role: "img", "aria-label": label });
}

export function setBar(track, label, parts) {
  setAttribute(track, "aria-label", label);
  keyed(
    track,
    parts,
    (part) => part.kind,
    (part) => make("i", { "data-kind": part.kind }),
    (node, part) => node.style.setProperty("width", `${part.share.toFixed(2)}%`),
  );
}

// Of a row of elements only one is in the order of Tab; arrow keys go from one to the next.
export function rove(elements, current) {
  for (const element of elements) setAttribute(element, "tabindex", element === current ? 0 : -1);
}
