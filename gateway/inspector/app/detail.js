// The chosen answer: a sentence, before and after, why, what was done with the request, and its conversation.

import { $, el, fill, pane, sentence, visible } from "./dom.js";

const number = (value) => value.toFixed(2);

export function showDetail(found, does) {
  const { row, panes, why } = found;
  fill($("detail"),
    el("p", { class: `sentence ${row.kind}` }, el("span", { class: "sign" }, row.sign), " ", sentence(found.sentence), coded(found.code)),
    actions(row, found, does),
    panesOf(panes, found),
    why && whyOf(why, found),
    setting(found, does),
    heading("What was done with the request"),
    el("table", {}, el("tbody", {}, found.request.map(([name, value, code]) => el("tr", {}, el("th", {}, name), el("td", {}, sentence(value), coded(code)))))),
    turns(found, does));
  $("detail").scrollTop = 0;
  $("detail").dataset.id = row.id;
}

export function showNothing(text) {
  fill($("detail"), el("p", { class: "hint" }, text));
}

/** The word that log, metrics and filter have for what was just said. */
const coded = (code) => (code ? [" ", el("code", { class: "code", title: "its word in log, metrics and filter" }, visible(code))] : []);

const heading = (text) => el("h2", {}, text);

function actions(row, found, does) {
  const button = (words, key, act, props = {}) =>
    el("button", { type: "button", title: `key ${key}`, onclick: act, ...props }, words, " ", el("kbd", {}, key));
  const can = row.number !== null && !does.readOnly;
  const why = does.readOnly ? "opened with --read-only" : "there is no candidate to label";
  return el("div", { class: "actions" },
    button("right", "r", () => does.label("right"), { disabled: !can, ...(can ? {} : { title: why }), class: row.label === "right" ? "on" : "" }),
    button("wrong", "w", () => does.label("wrong"), { disabled: !can, ...(can ? {} : { title: why }), class: row.label === "wrong" ? "on" : "" }),
    button("skip", "s", does.skip),
    button("try", "t", does.tryIt),
    button("fixture", "f", does.fixture),
    button("curl", "c", does.curl),
    found.row.dialect && !does.readOnly ? el("button", { type: "button", onclick: does.slice }, does.isOff(found) ? "switch this slice on …" : "switch this slice off …") : null);
}

function panesOf(panes, found) {
  const [left, right] = panes.titles;
  const called = panes.after.map((call) => [el("span", { class: "callname" }, visible(call.name)), pane(call.arguments, null, `arguments of ${call.name}`)]);
  const kept = found.candidates.filter((call) => call.decision === "refused" && call.meant).length;
  const text = panes.text ? pane(panes.text, null, right) : el("p", { class: "hint" }, found.row.kind === "native" ? "Structured calls went out as the model server gave them." : "Nothing else.");
  return el("div", {},
    panes.note ? el("p", { class: "note" }, panes.note) : null,
    panes.before || called.length || panes.text ? el("div", { class: "panes" },
      el("section", {}, heading(left), panes.before ? pane(panes.before, panes.span, left) : el("p", { class: "hint" }, "Its text was not kept.")),
      el("section", {}, heading(right), called.length ? called.flat() : text,
        called.length && kept ? el("p", { class: "hint" }, `${kept} more stayed text.`) : null)) : null);
}

function whyOf(why, found) {
  const line = (points, words, code = "", style = "") => el("li", { class: style }, el("span", { class: "points" }, points), el("span", {}, visible(words), coded(code)));
  const taken = ({ points, code }) => (points === null ? "" : `${points < 0 ? "−" : code === "family" ? "+" : ""}${number(Math.abs(points))}`);
  const others = why.others.length
    ? el("details", {}, el("summary", { class: "hint" }, `${why.others.length} ${why.others.length === 1 ? "other" : "others"} saw no call of theirs`),
      el("ul", { class: "why" }, why.others.map((each) => line("", `${each.dialect}: ${each.reason}`, each.code))))
    : null;
  const scored = why.score > 0;
  return el("div", {}, heading("Why"),
    el("ul", { class: "why" },
      why.steps.map((step) => line(taken(step), step.words, step.code)),
      scored ? line(number(why.score), why.threshold ? `${why.score >= why.threshold ? "reaches" : "is below"} the threshold of ${number(why.threshold)}` : "in all", "", "sum") : null,
      why.signs.map((sign) => line("!", sign.words, sign.code))),
    others);
}

function setting(found, does) {
  if (!found.setting) return null;
  const other = found.others_under;
  const told = !other ? "" : other.count ? ` In this period it would have let ${other.count} more through, ${other.with_signs} of them with a sign against them.` : " Nothing else in this period would have come through.";
  return el("div", {}, heading("Under another setting"), el("p", {}, el("code", {}, visible(found.setting)), " would make a call of it.", told));
}

function turns(found, does) {
  if (found.conversation.length < 2) return null;
  return el("div", {}, heading("The conversation"),
    el("ul", { class: "turns" }, found.conversation.map((turn) =>
      el("li", {}, turn.id === found.row.id
        ? el("b", {}, turn.sign, " ", visible(turn.what))
        : el("a", { href: `#${encodeURIComponent(turn.id)}`, onclick: (event) => { event.preventDefault(); does.open(turn.id); } }, turn.sign, " ", visible(turn.what))))));
}
