// The page: what was asked for stands in the address, what is new comes by one stream, keys do what buttons do.

import { $, el, fill, sentence, toast, visible } from "./dom.js";
import { Fault, get, post, rowPath } from "./api.js";
import { showFigures } from "./figures.js";
import { List } from "./list.js";
import { showDetail, showNothing } from "./detail.js";
import { askReason, askTry, showKeys, showRollout } from "./dialogs.js";

let about = null;
let stream = null;
let shown = null;
let older = null;
let lastAt = null;
let figuresDue = 0;
let away = { why: "", since: 0 };
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const list = new List((row) => openDetail(row.id));

const address = () => new URLSearchParams(location.search);

function remember(changes) {
  const params = address();
  for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
  history.replaceState(null, "", `${location.pathname}${params.size ? `?${params}` : ""}`);
}

function fault(error) {
  $("fault").hidden = !error;
  if (error) fill($("fault"), visible(error.message));
}

async function guarded(work) {
  try {
    await work();
    fault(null);
  } catch (error) {
    if (!(error instanceof Fault) && !(error instanceof TypeError)) throw error;
    $("rows").setAttribute("aria-busy", "false");
    fault(error);
  }
}

async function load() {
  $("rows").setAttribute("aria-busy", "true");
  const filter = $("filter").value.trim();
  remember({ filter });
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.setAttribute("aria-pressed", String(filter.split(/\s+/).includes(button.dataset.filter)));
  }
  about = await get("/api/state");
  showAbout();
  const page = await get("/api/rows", { filter, limit: 100 });
  $("rows").setAttribute("aria-busy", "false");
  list.reset(page.rows);
  setOlder(page.next);
  lastAt = page.rows[0]?.at ?? lastAt;
  $("empty").hidden = page.rows.length > 0;
  $("rows").hidden = !page.rows.length;
  if (!page.rows.length) {
    $("empty").textContent = filter
      ? "No answer matches this filter."
      : `No answers yet. Point a client at http://${about.gateway.host}:${about.gateway.port}/v1 and send a request with tools: it is here a second later.`;
    showNothing("");
  }
  listen(filter);
}

function setOlder(next) {
  older = next;
  $("older").hidden = !next;
}

async function loadOlder() {
  if (!older) return;
  const page = await get("/api/rows", { filter: $("filter").value.trim(), before: older, limit: 100 });
  list.append(page.rows);
  while (list.rows.length > 500) {
    const gone = list.rows.shift();
    list.lines.get(List.key(gone))?.remove();
    list.lines.delete(List.key(gone));
  }
  setOlder(page.next);
}

/** Why nothing new can be seen here: said as long as it is so, since a list that stands still looks like a quiet one. */
function setAway(why) {
  if (why === away.why) return;
  away = { why, since: why ? (away.why ? away.since : Date.now()) : 0 };
  $("live").className = why ? "live off" : "live on";
  $("away").hidden = !why;
  if (why) fill($("away"), sentence(`${why} What stands here is as it was at ${clock.format(away.since)}.`));
  tellLive();
}

const GONE = "The inspector does not answer: it was stopped, or this machine slept. Run `toolgate inspect` again, and open the address that it prints.";
const ANEW = "The inspector was started anew, and this page belongs to its last start. Open the address that `toolgate inspect` printed.";

/** The browser comes back by itself where nobody answered, and gives up where it was refused: then we ask why. */
async function lost() {
  if (stream.readyState !== EventSource.CLOSED) return setAway(GONE);
  const error = await get("/api/state").then(() => null, (found) => found);
  setAway(error?.status === 401 ? ANEW : error?.status ? `The inspector refuses: ${error.message}.` : GONE);
  setTimeout(() => listen($("filter").value.trim()), 2000);
}

function listen(filter) {
  stream?.close();
  stream = new EventSource(`/api/live?${new URLSearchParams({ cursor: about.cursor, filter })}`);
  stream.onopen = () => { if (!away.why) $("live").className = "live on"; };
  stream.onerror = lost;
  stream.addEventListener("store", (event) => {
    const { fault: found } = JSON.parse(event.data);
    setAway(found && `The store does not answer: ${found}.`);
  });
  const on = (name, act) => stream.addEventListener(name, (event) => {
    about.cursor = event.lastEventId || about.cursor;
    act(JSON.parse(event.data));
  });
  on("row", (row) => {
    lastAt = Math.max(lastAt ?? 0, row.at + row.ms / 1000);
    list.add(row);
    figuresDue = figuresDue || Date.now() + 700;
  });
  on("outcome", (told) => list.outcome(told));
  on("label", (told) => list.label(told));
  on("state", async (state) => {
    about.rollout = state.decisions ? state : (await get("/api/state")).rollout;
    showAbout();
  });
}

function showAbout() {
  const { rollout } = about;
  $("rollout").textContent = `rollout: ${rollout.state.replace("_", " ")}${rollout.state === "canary" ? ` ${rollout.percent} %` : ""}`;
  const alarms = [
    ...(rollout.killed ? ["killed: everything is relayed untouched"] : []),
    ...rollout.slices_off.map((name) => `${name} is switched off`),
  ];
  fill($("alarms"), alarms.map((words) => el("span", { class: "alarm" }, visible(words))));
}

function tellLive() {
  const since = lastAt === null ? null : Math.max(0, Math.round(Date.now() / 1000 - lastAt));
  const age = since === null ? "no answer yet" : since < 120 ? `${since} s ago` : since < 7200 ? `${Math.round(since / 60)} min ago` : `${Math.round(since / 3600)} h ago`;
  const text = list.paused ? `paused, ${list.waiting.length} new` : away.why ? "not live" : `last answer ${age}`.replace("last answer no", "no");
  if ($("live").textContent !== text) $("live").textContent = text;
  if (figuresDue && Date.now() > figuresDue) {
    figuresDue = 0;
    guarded(() => showFigures($("period").value, setFilter));
  }
}

function setFilter(filter) {
  $("filter").value = filter;
  guarded(load);
}

let wanted = null;

async function openDetail(id) {
  wanted = id;
  await guarded(async () => {
    const found = await get(rowPath(id), { since: $("period").value });
    if (wanted !== id) return;
    shown = found;
    showDetail(found, does);
  });
}

const does = {
  get readOnly() { return about.read_only; },
  async label(verdict) {
    const row = list.current ?? shown?.row;
    if (!row || row.number === null || about.read_only) return toast(about.read_only ? "opened with --read-only" : "there is no candidate to label");
    list.move(1);
    await guarded(async () => {
      const tally = await post("/api/label", { id: row.id, number: row.number, verdict });
      list.label({ id: row.id, number: row.number, label: verdict });
      toast(`${row.tool || row.id}: ${verdict}. ${tally.dialect} so far: ${tally.right} right, ${tally.wrong} wrong`);
    });
  },
  skip: () => list.move(1),
  tryIt: () => shown && askTry(shown, about.threshold),
  async fixture() {
    if (!shown) return;
    await guarded(async () => {
      const line = await get(rowPath(shown.row.id, "/fixture"));
      const link = el("a", { href: URL.createObjectURL(new Blob([`${JSON.stringify(line)}\n`])), download: "toolgate-fixture.jsonl" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      toast("one line for toolgate replay was saved");
    });
  },
  async curl() {
    if (!shown) return;
    await guarded(async () => {
      const { body } = await get(rowPath(shown.row.id, "/request"));
      const { host, port } = about.gateway;
      const data = body ?? JSON.stringify({ model: shown.row.model, messages: [{ role: "user", content: "…" }] });
      const quoted = data.replaceAll("'", "'\\''");
      const command = `curl -s http://${host}:${port}/v1/chat/completions \\\n  -H 'Content-Type: application/json' -H "Authorization: Bearer $TOOLGATE_KEY" \\\n  -d '${quoted}'`;
      await navigator.clipboard.writeText(command).then(() => toast(body ? "copied" : "copied; the request itself was not kept"), () => toast("the browser does not let this page copy"));
    });
  },
  isOff: ({ strategy, dialect }) => about.rollout.slices_off.includes(`${strategy}/${dialect}`),
  slice() {
    const { strategy, dialect } = shown;
    const isOff = does.isOff(shown);
    const effect = isOff ? `Calls of ${strategy}/${dialect} are delivered again, and judged anew.` : `Calls of ${strategy}/${dialect} stay text, in every gateway of this store, from within a second on.`;
    askReason(isOff ? "switch on" : "switch off", effect, (reason) => post("/api/rollout/slice", { strategy, dialect, off: !isOff, reason }));
  },
  open: (id) => openDetail(id),
};

function togglePause() {
  list.paused = !list.paused;
  $("pause").setAttribute("aria-pressed", String(list.paused));
  if (!list.paused) list.takeWaiting(false);
  tellLive();
}

const KEYS = {
  j: () => list.move(1), k: () => list.move(-1), ArrowDown: () => list.move(1), ArrowUp: () => list.move(-1),
  "/": () => $("filter").select(), " ": togglePause, r: () => does.label("right"), w: () => does.label("wrong"),
  s: does.skip, f: does.fixture, c: does.curl, t: does.tryIt, "?": showKeys,
};

document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  if (at.matches("input, textarea, select")) {
    if (event.key === "Escape") $("rows").focus();
    return;
  }
  if ((event.key === " " && at.matches("button, summary, a")) || (event.key.startsWith("Arrow") && at.matches("pre"))) return;
  if (!(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

$("filter-form").addEventListener("submit", (event) => { event.preventDefault(); guarded(load); $("rows").focus(); });
$("filter").addEventListener("search", () => guarded(load));
for (const button of document.querySelectorAll("[data-filter]")) {
  button.addEventListener("click", () => {
    const parts = $("filter").value.trim().split(/\s+/).filter(Boolean);
    const has = parts.includes(button.dataset.filter);
    setFilter((has ? parts.filter((part) => part !== button.dataset.filter) : [...parts, button.dataset.filter]).join(" "));
  });
}
$("pause").addEventListener("click", togglePause);
$("help").addEventListener("click", showKeys);
$("older").addEventListener("click", () => guarded(loadOlder));
$("rows").addEventListener("scroll", () => {
  const box = $("rows");
  if (box.scrollTop + box.clientHeight > box.scrollHeight - 40) guarded(loadOlder);
}, { passive: true });
$("rollout").addEventListener("click", () => showRollout(about.rollout, about.read_only, async () => { about = await get("/api/state"); showAbout(); }));
$("period").addEventListener("change", () => { remember({ since: $("period").value }); guarded(() => showFigures($("period").value, setFilter)); });

$("filter").value = address().get("filter") ?? "";
showNothing("Choose an answer, or press j.");
await guarded(load);
while (!stream) { // the store may not be there yet
  await new Promise((done) => setTimeout(done, 2000));
  if (!stream) await guarded(load);
}
$("period").value = address().get("since") ?? about?.period ?? "1h";
await guarded(() => showFigures($("period").value, setFilter));
setInterval(tellLive, 1000);
tellLive();
$("rows").focus();
