// Elements from data, and the smallest change that turns one tree into another: focus, selection and scroll places survive a refresh.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; attributes that are null, undefined or false are left out. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Makes the children of `parent` those given, reusing every node that can stay. */
export function show(parent, ...children) {
  const wanted = document.createDocumentFragment();
  wanted.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  morphChildren(parent, wanted);
}

function morphChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, index) => {
    const there = old.childNodes[index];
    if (!there) old.append(node);
    else if (alike(there, node)) morph(there, node);
    else there.replaceWith(node);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

const alike = (one, other) =>
  one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;

function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, fresh);
}
