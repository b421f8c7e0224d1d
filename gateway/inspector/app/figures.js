// The five figures above the list, each a link that sets the filter, and the models below them.

import { $, el, fill, visible } from "./dom.js";
import { get } from "./api.js";

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`);
const many = (number, one, more = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : more}`;
const rate = (found) => (found.of === 0 ? "–" : percent(found.share));
const bad = (found) => (found.too_few ? "too few" : percent(found.share));
const bounds = (found) => (found.too_few ? `${found.of} turns` : `${percent(found.low)} to ${percent(found.high)}`);

export async function showFigures(period, onFilter) {
  const found = await get("/api/figures", { since: period });
  const worst = found.models.filter((model) => model.leaked.hits > 0).slice(0, 2);
  const named = worst.map((model) => `${model.model} ${rate(model.leaked)}`).join(", ") || "no model does";
  const cards = [
    [found.answers.toLocaleString("en"), `${found.answers === 1 ? "answer" : "answers"} to requests with tools, ${many(found.conversations, "conversation")}`, ""],
    [rate(found.leaked), `wrote a call as text: ${named}`, "-outcome:native -outcome:prose -outcome:error"],
    [rate(found.became), `of those became calls; ${many(found.stayed_text, "stayed text", "stayed text")}`, "decision:refused"],
    [found.bad.live.too_few && found.bad.untouched.too_few ? "too few" : `${bad(found.bad.live)} | ${bad(found.bad.untouched)}`, `bad next turns, live | untouched (${bounds(found.bad.live)} | ${bounds(found.bad.untouched)})`, "outcome:rejected"],
    [found.added_ms_p95 === null ? "–" : `${found.added_ms_p95.toFixed(1)} ms`, "added by the gateway, p95", "arm:live"],
  ];
  fill($("figures"), cards.map(([value, words, filter]) =>
    el("button", { type: "button", title: filter ? `show ${filter}` : "show all", onclick: () => onFilter(filter) },
      el("b", {}, value), el("span", {}, visible(words)))));
  fill($("model-table"), table(found.models, onFilter));
}

function table(models, onFilter) {
  if (!models.length) return el("p", { class: "hint" }, "No answers to requests with tools in this period.");
  const heads = ["model", "answers", "native", "calls as text", "became calls", "rejected by the client", "dialects seen"];
  const cells = (model) => [
    el("td", {}, el("button", { type: "button", onclick: () => onFilter(`model:"${model.model.replaceAll('"', "?")}"`) }, visible(model.model))),
    ...[model.answers, model.native, rate(model.leaked), rate(model.became), model.rejected].map((value) =>
      el("td", { class: "number" }, value.toLocaleString("en"))),
    el("td", {}, visible(Object.entries(model.dialects).map(([name, count]) => `${name} ${count}`).join(", "))),
  ];
  return el("table", {},
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { class: at > 0 && at < 6 ? "number" : "" }, head)))),
    el("tbody", {}, models.map((model) => el("tr", {}, cells(model)))));
}
