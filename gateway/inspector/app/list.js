// The list: one line for each answer, the newest first; what is being read never moves.

import { $, el, fill, plain, visible } from "./dom.js";

const KEPT = 500;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const NEXT = { accepted: "accepted", rejected: "rejected", complained: "complained", "": "…" };

export class List {
  constructor(onChoose) {
    this.rows = [];
    this.lines = new Map();
    this.waiting = [];
    this.chosen = null;
    this.paused = false;
    this.onChoose = onChoose;
    $("rows").addEventListener("click", (event) => {
      const line = event.target.closest("li");
      if (line) this.choose(line.dataset.at);
    });
    $("fresh").addEventListener("click", () => this.takeWaiting(true));
    $("rows").addEventListener("scroll", () => this.takeWaiting(false), { passive: true });
  }

  static key(row) {
    return `${row.at}|${row.id}`;
  }

  get isReading() {
    return this.paused || $("rows").scrollTop > 4;
  }

  reset(rows) {
    this.rows = [];
    this.lines.clear();
    this.waiting = [];
    fill($("rows"));
    this.append(rows);
    this.tellWaiting();
  }

  append(rows) {
    for (const row of rows) {
      if (this.lines.has(List.key(row))) continue;
      this.rows.push(row);
      $("rows").append(this.line(row));
    }
  }

  add(row) {
    if (this.lines.has(List.key(row)) || this.waiting.some((each) => List.key(each) === List.key(row))) return;
    if (this.isReading) {
      this.waiting.push(row);
      if (this.waiting.length > KEPT) this.waiting.shift();
      this.tellWaiting();
    } else {
      this.prepend(row);
    }
  }

  prepend(row) {
    this.rows.unshift(row);
    $("rows").prepend(this.line(row));
    while (this.rows.length > KEPT) {
      const gone = this.rows.pop();
      const line = this.lines.get(List.key(gone));
      this.lines.delete(List.key(gone));
      line.remove();
    }
    $("empty").hidden = true;
    $("rows").hidden = false;
  }

  takeWaiting(isAsked) {
    if (isAsked) $("rows").scrollTop = 0;
    if (!this.waiting.length || (this.isReading && !isAsked)) return;
    const waiting = this.waiting;
    this.waiting = [];
    waiting.forEach((row) => this.prepend(row));
    this.tellWaiting();
  }

  tellWaiting() {
    $("fresh").hidden = !this.waiting.length;
    $("fresh").textContent = `${this.waiting.length} new`;
  }

  /** Fills in how the next turn took an answer: of the conversation's answers the last one before the one that told. */
  outcome({ key, at, by, next, next_reason, next_words }) {
    const row = this.rows.find((each) => each.key === key && each.at < at && each.id !== by);
    if (row) this.update(row, { next, next_reason, next_words });
  }

  label({ id, number, label }) {
    for (const row of this.rows) if (row.id === id && row.number === number) this.update(row, { label });
  }

  update(row, changes) {
    Object.assign(row, changes);
    const old = this.lines.get(List.key(row));
    const line = this.line(row);
    old.replaceWith(line);
  }

  line(row) {
    const score = row.score === null ? "" : row.score.toFixed(2);
    const next = NEXT[row.next] ?? row.next;
    const label = row.label ? ` ${row.label === "right" ? "✓" : "✗"}` : "";
    const isChosen = this.chosen === List.key(row);
    const said = [row.what, row.model, row.dialect, score && `score ${score}`, row.next ? `next turn ${next}${row.next_words && `: ${row.next_words}`}` : "next turn unknown", row.label && `labelled ${row.label}`];
    const line = el("li", { role: "option", class: row.kind, "aria-selected": isChosen, "aria-label": plain(said.filter(Boolean).join(", ")) },
      el("span", { class: "time" }, clock.format(row.at * 1000)),
      el("span", { class: "what" }, el("span", { class: "sign" }, row.sign), visible(row.what)),
      el("span", { class: "model" }, visible(row.model)),
      el("span", { class: "arm" }, row.arm.replace("_", " ")),
      el("span", { class: "dialect" }, visible(row.dialect)),
      el("span", { class: "score" }, score),
      el("span", { class: row.next, title: row.next_words ? `${row.next_words} (${row.next_reason})` : "" }, next, row.next_reason ? ` ${row.next_reason.replaceAll("_", " ")}` : "", el("span", { class: row.label ?? "" }, label)),
      el("span", { class: "ms" }, row.ms.toLocaleString("en")));
    line.id = `row-${this.lines.size}-${Math.round(row.at * 1e3)}`;
    line.dataset.at = List.key(row);
    line.dataset.id = row.id;
    this.lines.set(List.key(row), line);
    if (isChosen) $("rows").setAttribute("aria-activedescendant", line.id);
    return line;
  }

  get current() {
    return this.rows.find((row) => List.key(row) === this.chosen);
  }

  choose(key) {
    const before = this.lines.get(this.chosen);
    before?.setAttribute("aria-selected", "false");
    this.chosen = key;
    const line = this.lines.get(key);
    if (!line) return;
    line.setAttribute("aria-selected", "true");
    line.scrollIntoView({ block: "nearest" });
    $("rows").setAttribute("aria-activedescendant", line.id);
    this.onChoose(this.current);
  }

  move(steps) {
    const at = this.rows.findIndex((row) => List.key(row) === this.chosen);
    const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, at < 0 ? 0 : at + steps))];
    if (row) this.choose(List.key(row));
  }
}
