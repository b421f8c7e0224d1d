// Everything on the page is made here: elements, attributes that are ours, and text nodes. What a model wrote is text.

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export const $ = (id) => document.getElementById(id);

/** An element with properties of ours and children; a string child becomes a text node. */
export function el(name, props, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-") || key === "role" || key === "for") made.setAttribute(key, String(value));
    else made[key] = value;
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** What a sign that would not be seen, or would turn a line around, is shown as. */
function shownSign(sign) {
  const code = sign.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The nodes of a text, with boxes for what would not be seen as it is. */
export function visible(text) {
  const nodes = [];
  let at = 0;
  for (const found of String(text).matchAll(CONTROLS)) {
    if (found.index > at) nodes.push(text.slice(at, found.index));
    nodes.push(el("span", { class: "box", title: "a sign that is not seen as it is" }, shownSign(found[0])));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

/** A sentence of ours, in which names stand between backticks. */
export function sentence(text) {
  return String(text).split("`").flatMap((part, at, parts) => (at % 2 && at < parts.length - 1 ? el("code", {}, visible(part)) : visible(at % 2 ? `\`${part}` : part)));
}

/** The same as one string, for attributes that are read aloud. */
export const plain = (text) => String(text).replace(CONTROLS, shownSign);

export function fill(target, ...children) {
  target.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

const SHORT = 64 * 1024;

/** A pane of text; what is longer than 64 KiB is shown on demand. `span` is marked. */
export function pane(text, span, label) {
  const made = el("pre", { tabIndex: 0, "aria-label": label });
  const show = (end) => {
    const upTo = text.slice(0, end);
    const [from, to] = span ?? [0, 0];
    if (span && from < to && from < end) {
      fill(made, visible(upTo.slice(0, from)), el("mark", {}, visible(upTo.slice(from, to))), visible(upTo.slice(to)));
    } else {
      fill(made, visible(upTo));
    }
    if (end < text.length) {
      const left = Math.round((text.length - end) / 1024);
      made.append("\n", el("button", { type: "button", onclick: () => show(end + SHORT) }, `more (${left} KiB)`));
    }
  };
  show(Math.max(SHORT, span && span[1] < 2 * SHORT ? span[1] : 0));
  return made;
}

let hiding = 0;

export function toast(text) {
  fill($("toast"), visible(text));
  clearTimeout(hiding);
  hiding = setTimeout(() => fill($("toast")), 5000);
}

/** Ask in a dialog; `body` are nodes, and whoever made them closes it. */
export function dialog(title, ...body) {
  const box = $("dialog");
  if (box.open) box.close();
  fill(box, el("h3", { id: "dialog-title" }, title), ...body);
  box.showModal();
  return box;
}

export const closeDialog = () => $("dialog").close();
