"use strict";
// Accuracy by uploads or by rounds, drawn into an SVG element. Everything is set as text or number.
const Chart = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const LEFT = 46, RIGHT = 468, TOP = 12, BOTTOM = 180, MOST = 600;

  function add(svg, kind, values, text) {
    const made = document.createElementNS(SPACE, kind);
    for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    svg.append(made);
  }

  function thinned(rows) {
    // Of very many points some, the last always among them.
    if (rows.length <= MOST) return rows;
    const step = (rows.length - 1) / (MOST - 1);
    return Array.from({ length: MOST }, (_, at) => rows[Math.round(at * step)]);
  }

  function ticks(low, high) {
    const raw = (high - low) / 4, size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((times) => times * size).find((one) => one >= raw);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1)
      found.push(at * step);
    return found;
  }

  const percent = (value) => `${+(100 * value).toFixed(2)}%`;

  // rows: [x, accuracy]; breaks: x at which a phase begins; label: what x counts.
  function draw(svg, rows, breaks, label) {
    svg.replaceChildren();
    const known = thinned(rows.filter((row) => row[1] !== null));
    const first = known[0][0], last = Math.max(known.at(-1)[0], first + 1);
    let low = Infinity, high = -Infinity;
    for (const [, value] of known) { low = Math.min(low, value); high = Math.max(high, value); }
    const room = Math.max((high - low) * 0.08, 0.005);
    low = Math.max(0, low - room);
    high = Math.min(1, high + room);
    const x = (value) => LEFT + ((RIGHT - LEFT) * (value - first)) / (last - first);
    const y = (value) => BOTTOM - ((BOTTOM - TOP) * (value - low)) / (high - low);
    for (const value of ticks(low, high)) {
      add(svg, "line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(value), y2: y(value) });
      add(svg, "text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value));
    }
    for (const at of breaks)
      add(svg, "line", { class: "phase", x1: x(at), x2: x(at), y1: TOP, y2: BOTTOM });
    const ends = known.length > 1 ? [first, last] : [first];
    for (const value of ends)
      add(svg, "text", { x: x(value), y: BOTTOM + 17, "text-anchor": value === first ? "start" : "end" }, value);
    add(svg, "text", { x: (LEFT + RIGHT) / 2, y: BOTTOM + 17, "text-anchor": "middle" }, label);
    const path = known.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    add(svg, "polyline", { class: "line", points: path });
    const [at, value] = known.at(-1);
    add(svg, "circle", { class: "dot", cx: x(at), cy: y(value), r: 3.5 });
    svg.setAttribute("aria-label", `Accuracy ${percent(value)} after ${at} ${label}`);
  }

  return { draw, percent };
})();
