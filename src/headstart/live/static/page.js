"use strict";
// Events come from the server's files; the page adds them up and draws at most once a frame.
// Whatever a file says is put into the page as text, never as markup.
const views = new Map(), reports = new Map();
let skew = 0; // seconds that this clock is behind the server's
const QUIET = 60, SHOWN = 100;
const byId = (id) => document.getElementById(id);
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${value >= 100 || at === 0 ? Math.round(value) : +value.toPrecision(3)} ${units[at]}`;
}

function span(seconds) {
  if (seconds > 0 && seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

const now = () => Date.now() / 1000 + skew;
const clock = (at) => new Date(1000 * at).toLocaleTimeString();

// -- what is known ---------------------------------------------------------------------------------

function blank(message) {
  return { kind: message.kind, name: message.name, facts: {}, dirty: true, stale: true,
    points: new Map(), arrivals: new Map(), clients: new Map() };
}

function take(message) {
  if (message.report !== undefined) return takeReport(message);
  skew = message.now - Date.now() / 1000;
  let view = views.get(message.view);
  if (!view || message.reset) {
    const card = view ? view.card : newCard(message.kind);
    view = Object.assign(blank(message), { card });
    views.set(message.view, view);
  }
  view.facts = message.facts;
  for (const row of message.points) view.points.set(`${row[0]}:${row[1]}`, row);
  for (const row of message.arrivals) view.arrivals.set(row[0], row);
  for (const row of message.clients) {
    view.clients.delete(row.client); // so that the latest is the last
    if (row.state !== "open") view.clients.set(row.client, row);
  }
  view.stale ||= message.points.length > 0 || message.arrivals.length > 0;
  view.dirty = true;
  byId("empty").hidden = true;
  return draw();
}

function takeReport(message) {
  let held = reports.get(message.report);
  if (held && !message.version) { held.section.remove(); reports.delete(message.report); }
  if (!message.version) return;
  if (!held) {
    held = newReport(message);
    reports.set(message.report, held);
  }
  held.frame.src = `report/${message.report}?v=${message.version}`;
}

// -- the page --------------------------------------------------------------------------------------

function newCard(kind) {
  // Runs stand before ledgers, whichever is sent first.
  const card = byId("view").content.firstElementChild.cloneNode(true), all = byId("views");
  card.classList.toggle("ledger", kind === "ledger");
  all.insertBefore(card, kind === "ledger" ? null : all.querySelector(".ledger"));
  return card;
}

function newReport(message) {
  const section = document.createElement("section"), title = document.createElement("h2");
  const frame = document.createElement("iframe");
  section.className = "report";
  title.textContent = `Report of ${message.name}`;
  frame.title = title.textContent;
  frame.setAttribute("sandbox", "allow-same-origin"); // no scripts; its height can be read
  const fit = () => {
    const inner = frame.contentDocument && frame.contentDocument.documentElement;
    if (!inner) return;
    frame.style.height = "0";
    frame.style.height = `${inner.scrollHeight + 2}px`;
  };
  frame.addEventListener("load", fit);
  addEventListener("resize", fit);
  section.append(title, frame);
  byId("reports").append(section);
  return { section, frame };
}

let asked = false;
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    for (const view of views.values()) if (view.dirty) drawView(view);
  });
}

function drawView(view) {
  const { card, facts } = view, find = (what) => card.querySelector(what);
  const seed = facts.seed ? `, seed ${facts.seed}` : "";
  find("h2").textContent = facts.pipeline || (view.kind === "ledger" ? "Ledger" : "Run");
  find(".name").textContent = view.name + seed;
  drawStatus(view);
  show(find(".why"), facts.status === "stopped" ? facts.why : "");
  drawTiles(find(".tiles"), view);
  if (view.stale) drawChart(find("figure"), view);
  drawClients(view, find(".trouble"), find(".lately"));
  show(find(".note"), note(facts));
  view.dirty = view.stale = false;
}

function show(element, text) {
  element.hidden = !text;
  element.textContent = text || "";
}

function drawStatus(view) {
  const { card, facts } = view, badge = card.querySelector(".badge"), bar = card.querySelector(".bar");
  const running = facts.status === "running", silence = facts.last ? now() - facts.last : 0;
  const quiet = running && silence > QUIET && !(facts.until > now());
  badge.textContent = quiet ? `no sign for ${span(silence)}` : facts.status;
  badge.className = `badge ${quiet ? "quiet" : facts.status}`;
  const collecting = facts.until || (facts.work === undefined && facts.clients && !facts.private);
  const done = collecting ? facts.in : facts.done, of = collecting ? facts.clients : facts.of;
  bar.hidden = !running || done === undefined || !of;
  if (bar.hidden) return;
  bar.querySelector("progress").value = Math.min(1, done / of);
  const left = facts.left === null || facts.left === undefined ? null : facts.last + facts.left - now();
  const words = [collecting ? `${done} of ${of} uploads` : `${facts.work}: ${done} of ${of}`];
  if (left !== null) words.push(`about ${span(left)} left`);
  if (facts.until > now()) words.push(`waits until ${clock(facts.until)} at most, ${span(facts.until - now())}`);
  bar.querySelector("p").textContent = words.join(" · ");
}

function tiles(view) {
  const { facts } = view, found = [], known = (value) => value !== undefined && value !== null;
  if (known(facts.accuracy)) found.push(["Accuracy", Chart.percent(facts.accuracy)]);
  if (known(facts.round) && facts.round > 0) found.push(["Round", facts.round]);
  const arrived = Math.max(facts.in || 0, facts.arrived || 0);
  if (arrived) found.push(["Uploads", arrived, facts.clients ? `of ${facts.clients}` : ""]);
  else if (facts.clients) found.push(["Clients", facts.clients]);
  if (known(facts.samples)) found.push(["Samples", facts.samples.toLocaleString()]);
  if (known(facts.up)) found.push(["Traffic up", bytes(facts.up), known(facts.down) ? `down ${bytes(facts.down)}` : ""]);
  if (facts.refused) found.push(["Refused", facts.refused]);
  if (facts.silent) found.push(["Silent", facts.silent]);
  if (facts.epsilon) found.push(["ε spent", +facts.epsilon.spent.toPrecision(3),
    `of ${facts.epsilon.of} at δ = ${facts.epsilon.delta}`]);
  if (facts.started) found.push(["Time", span((facts.ended || (facts.status === "stopped" ? facts.last : now())) - facts.started), `since ${clock(facts.started)}`]);
  return found;
}

function drawTiles(list, view) {
  list.replaceChildren(...tiles(view).map(([what, value, more]) => {
    const tile = document.createElement("div"), dt = document.createElement("dt");
    const dd = document.createElement("dd"), small = document.createElement("small");
    dt.textContent = what;
    dd.textContent = value;
    small.textContent = more || "";
    dd.append(small);
    tile.append(dt, dd);
    return tile;
  }));
}

function curve(view) {
  // By rounds where there are some, else by uploads; a phase begins where the last one ended.
  const points = [...view.points.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (points.length < 2) return [[...view.arrivals.values()].sort((a, b) => a[0] - b[0]).map((row) => [row[0], row[2]]), [], "uploads"];
  const rows = [], breaks = [];
  let before = 0, phase = points[0][0], last = 0;
  for (const [own, round, accuracy] of points) {
    if (own !== phase) { before += last; phase = own; last = 0; if (rows.length > 1) breaks.push(before); }
    last = round;
    rows.push([before + round, accuracy]);
  }
  return [rows, breaks, "rounds"];
}

function drawChart(figure, view) {
  const [rows, breaks, label] = curve(view);
  figure.hidden = rows.filter((row) => row[1] !== null).length < 2;
  if (figure.hidden) return;
  Chart.draw(figure.querySelector("svg"), rows, breaks, label);
  figure.querySelector("figcaption").textContent = `Accuracy of the shared model after each of the ${label}.`;
}

function drawClients(view, trouble, lately) {
  const all = [...view.clients.values()].reverse();
  const bad = all.filter((row) => row.state !== "in").sort((a, b) => (a.state > b.state ? 1 : -1));
  const good = all.filter((row) => row.state === "in");
  fill(trouble, bad, (row) => `${row.state}: ${row.why || "no reason was given"}`);
  fill(lately, good, (row) => [row.samples ? plural(row.samples, "sample") : "", row.bytes ? bytes(row.bytes) : "",
    row.time ? clock(row.time) : ""].filter(Boolean).join(" · ") || "in");
}

function fill(section, rows, words) {
  section.hidden = rows.length === 0;
  section.querySelector("ul").replaceChildren(...rows.slice(0, SHOWN).map((row) => {
    const item = document.createElement("li"), name = document.createElement("b");
    const what = document.createElement("span");
    item.className = row.state;
    name.textContent = row.client;
    what.textContent = words(row);
    item.append(name, what);
    return item;
  }));
}

function note(facts) {
  const words = [];
  if (facts.private) words.push("Private: only what was released is shown.");
  if (facts.masked) words.push("Masked: clients are seen in sums of their groups alone.");
  if (facts.forgotten) words.push(`${plural(facts.forgotten, "client")} forgotten.`);
  return words.join(" ");
}

// -- the connection --------------------------------------------------------------------------------

const link = byId("link");
const source = new EventSource("events");
source.addEventListener("hello", () => {
  // The server tells all from the beginning: another one may be there than before.
  for (const view of views.values()) view.card.remove();
  views.clear();
  byId("empty").hidden = false;
  link.className = "link";
  link.textContent = "live, only reading";
});
source.addEventListener("message", (event) => take(JSON.parse(event.data)));
source.addEventListener("error", () => {
  link.className = "link lost";
  link.textContent = "not connected; trying again";
});
setInterval(() => {
  for (const view of views.values())
    if (view.facts.status === "running") { drawStatus(view); drawTiles(view.card.querySelector(".tiles"), view); }
}, 1000);
