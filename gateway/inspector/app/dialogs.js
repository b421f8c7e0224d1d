// Dialogs: trying an answer again, the rollout with its last decisions, and the keys.

import { closeDialog, dialog, el, fill, pane, sentence, toast, visible } from "./dom.js";
import { get, post, rowPath } from "./api.js";

const when = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });
const close = () => el("button", { type: "button", onclick: closeDialog }, "Close");

export async function askTry(found, threshold) {
  const tools = await get(rowPath(found.row.id, "/request")).then(({ body }) => JSON.parse(body)?.tools ?? null).catch(() => null);
  const text = el("textarea", { value: found.panes.before, "aria-label": "what the model wrote" });
  const offered = el("textarea", { value: tools ? JSON.stringify(tools, null, 1) : "", placeholder: "tools as JSON; empty: those of common coding agents", "aria-label": "tools" });
  const least = el("input", { type: "number", min: 0, max: 1, step: 0.01, value: threshold, "aria-label": "threshold" });
  const dialect = el("input", { placeholder: "dialect, if the model was asked for one", "aria-label": "dialect" });
  const result = el("div", { role: "status" });
  const run = async () => {
    try {
      const given = offered.value.trim() ? JSON.parse(offered.value) : null;
      const told = await post("/api/try", { text: text.value, tools: given, min_confidence: Number(least.value), dialect: dialect.value.trim() || null, model: found.row.model, finish: found.finish ?? "stop" });
      fill(result,
        told.calls.map((call) => el("div", {}, el("span", { class: "callname" }, "✓ ", visible(call.name), ` (${call.dialect}, ${call.score.toFixed(2)})`), pane(JSON.stringify(JSON.parse(call.arguments), null, 2), null, "arguments"))),
        told.rejected.map((each) => el("p", { class: "rejected" }, "✗ ", sentence(each.sentence))),
        told.remarks.map((remark) => el("p", { class: "hint" }, visible(remark))),
        told.calls.length + told.rejected.length + told.remarks.length ? null : el("p", { class: "hint" }, "No call, and nothing that looks like one."));
    } catch (error) {
      fill(result, el("p", { class: "rejected" }, visible(error.message)));
    }
  };
  dialog("Read it again: nothing is stored", text, offered,
    el("div", { class: "line" }, "threshold ", least, dialect, el("button", { type: "button", onclick: run }, "Read"), close()), result);
  await run();
}

const EFFECTS = {
  pause: "The share stays as it is, and nothing is promoted until resume.",
  resume: "A pause or a rollback ends; slices that are off are on again.",
  rollback: "Nobody is live any more, in every gateway of this store, until resume.",
  kill: "Everything is relayed untouched within a second, in every gateway of this store.",
  unkill: "The kill switch is turned off: what held before holds again.",
  promote: "The next step begins, if its gates are met.",
};

/** What makes sense now; whatever else is asked for, the rollout itself refuses. */
const verbs = ({ killed, state, slices_off: off }) => Object.keys(EFFECTS).filter((verb) =>
  ({ kill: !killed, unkill: killed, resume: off.length > 0 || ["paused", "rolled_back"].includes(state), promote: !killed && state !== "full" })[verb] ?? !killed);

export function askReason(title, effect, act) {
  const reason = el("input", { placeholder: "why? (kept with the decision)", required: true, "aria-label": "reason" });
  const fault = el("p", { class: "rejected", role: "alert" });
  const go = async (event) => {
    event.preventDefault();
    try {
      await act(reason.value);
      closeDialog();
      toast(`${title}: done`);
    } catch (error) {
      fill(fault, visible(error.message));
    }
  };
  dialog(title, el("p", {}, visible(effect)),
    el("form", { onsubmit: go }, el("div", { class: "line" }, reason, el("button", { type: "submit" }, title), close())), fault);
  reason.focus();
}

export function showRollout(rollout, readOnly, onDone) {
  const act = (verb) => askReason(verb, EFFECTS[verb], async (reason) => { await post(`/api/rollout/${verb}`, { reason }); onDone(); });
  const on = (name) => () => {
    const [strategy, dialect] = [name.slice(0, name.indexOf("/")), name.slice(name.indexOf("/") + 1)];
    askReason("switch on", `Calls of ${name} are delivered again, and judged anew.`, async (reason) => {
      await post("/api/rollout/slice", { strategy, dialect, off: false, reason });
      onDone();
    });
  };
  const decisions = rollout.decisions.map((each) => el("tr", {},
    el("td", {}, when.format(each.at * 1000)), el("td", {}, `${each.decision.replace("_", " ")}${each.slice === "all" ? "" : ` ${each.slice}`}`),
    el("td", {}, visible(each.by)), el("td", {}, visible(each.reason),
      Object.keys(each.numbers).length ? el("details", {}, el("summary", {}, "numbers"), Object.entries(each.numbers).map(([name, value]) => el("div", {}, `${name}: ${value}`))) : null)));
  dialog(`Rollout: ${rollout.state.replace("_", " ")}, ${rollout.percent} % live`,
    el("p", {}, visible(`since ${when.format(rollout.since * 1000)}, by ${rollout.by}: ${rollout.reason}`)),
    rollout.slices_off.map((name) => el("p", { class: "rejected" }, visible(`${name} is switched off `), readOnly ? null : el("button", { type: "button", onclick: on(name) }, "switch on …"))),
    readOnly ? el("p", { class: "hint" }, "Opened with --read-only.") : el("div", { class: "line" }, verbs(rollout).map((verb) => el("button", { type: "button", onclick: () => act(verb) }, `${verb} …`))),
    decisions.length ? el("table", {}, el("thead", {}, el("tr", {}, ["when", "decision", "who", "why"].map((head) => el("th", {}, head)))), el("tbody", {}, decisions)) : el("p", { class: "hint" }, "No decision has been taken yet."), close());
}

export function showKeys() {
  const keys = [["j k", "down, up"], ["/", "filter"], ["space", "pause, and go on"], ["r w s", "label right, wrong, skip; and go on to the next"], ["f", "save as a fixture for toolgate replay"], ["c", "copy as curl"], ["t", "try: read it again"], ["?", "this"]];
  dialog("Keys", el("table", {}, el("tbody", {}, keys.map(([key, words]) => el("tr", {}, el("th", {}, key.split(" ").map((each) => [el("kbd", {}, each), " "])), el("td", {}, words))))), close());
}
