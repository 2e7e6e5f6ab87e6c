"use strict";
// Draws the charts of a page again with Vega, from the same description: their points have names for pointer and
// keyboard, and each chart is saved from the page itself. Without this script the drawings stay as they are.

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true"); // a point has its name itself
document.body.append(tip);

function point(mark) {
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const [at, own] = [mark.getBoundingClientRect(), tip.getBoundingClientRect()];
  const left = Math.min(at.left + at.width / 2 + 10, document.documentElement.clientWidth - own.width - 8);
  const above = at.top - own.height - 8;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above < 8 ? at.bottom + 8 : above}px`;
}

// The points of a chart are one stop of the Tab key; arrows, Home and End go from one to the next.
function named(svg) {
  const marks = [...svg.querySelectorAll(".role-mark > [aria-label]")];
  marks.forEach((mark, place) => mark.setAttribute("tabindex", place ? "-1" : "0"));
  const hide = () => { tip.hidden = true; };
  svg.addEventListener("pointerover", (event) => {
    if (marks.includes(event.target)) point(event.target);
  });
  svg.addEventListener("pointerout", hide);
  svg.addEventListener("focusin", (event) => {
    point(event.target);
    event.target.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  });
  svg.addEventListener("focusout", hide);
  svg.addEventListener("keydown", (event) => {
    const place = marks.indexOf(event.target);
    const last = marks.length - 1;
    const next = {
      ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: last,
    }[event.key];
    if (event.key === "Escape") hide();
    if (next === undefined) return;
    event.preventDefault();
    const mark = marks[Math.min(Math.max(next, 0), last)];
    marks.forEach((each) => each.setAttribute("tabindex", each === mark ? "0" : "-1"));
    mark.focus();
  });
}

// The rows that a chart draws, without those that say less than another: a line is drawn from a part of the points.
function csv(spec) {
  const rows = [];
  const width = (table) => Object.keys(table[0] ?? {}).length;
  for (const table of Object.values(spec.datasets ?? {}).sort((one, other) => width(other) - width(one))) {
    const says = (row, all) => Object.keys(row).every((key) => row[key] === all[key]);
    rows.push(...table.filter((row) => !rows.some((all) => says(row, all))));
  }
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const text = (value) => {
    const shown = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(shown) ? `"${shown.replace(/"/g, '""')}"` : shown;
  };
  return [columns, ...rows.map((row) => columns.map((column) => row[column]))].map((row) => row.map(text).join(","))
    .join("\n") + "\n";
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A chart as wide as its column: its plots take what is left, and what stands beside a plot stays there.
function widen(spec, extra) {
  const parts = (spec.vconcat ?? [spec]).map((row) => row.hconcat ?? [row]);
  const most = Math.max(...parts.map((row) => row.length));
  parts.flat().forEach((part) => widenPlot(part, Math.floor(extra / most)));
}

function widenPlot(spec, extra) {
  if (typeof spec.width !== "number") return;
  for (const { encoding: { x } } of (spec.layer ?? []).filter((each) => each.encoding)) {
    if (x?.value > spec.width) x.value += extra;
  }
  spec.width += extra;
}

// On a phone nothing fits beside a plot: what names a row, and its figures, are above its points.
function stack(spec, room) {
  const most = Math.floor(room / 6.5); // characters of a line
  const lines = (text) => [text].flat().join(" ").split(" ").reduce((all, word) => {
    const last = all.length - 1;
    return all[last].length + word.length < most ? all.with(last, `${all[last]} ${word}`.trim()) : [...all, word];
  }, [""]);
  if (spec.title) spec.title.text = lines(spec.title.text);
  for (const part of spec.vconcat ?? [spec]) {
    const shown = part.layer?.[0].encoding?.y?.axis?.labelExpr;
    if (!shown) continue;
    const labels = JSON.parse(shown.slice(1, shown.lastIndexOf(")"))).map((label, row) => ({ row, label: label.join(" ") }));
    const beside = part.layer.filter((each) => each.encoding.x?.value > part.width);
    const figures = beside.flatMap((each) => spec.datasets[each.data.name]);
    const isLong = figures.some((each) => each.text && labels[each.row].label.length + each.text.length > most - 3);
    part.width = room;
    part.height = { step: isLong ? 56 : 38 };
    for (const { mark, encoding } of part.layer) {
      encoding.y.axis = null;
      if (mark.type !== "text") continue;
      const isBeside = encoding.x.value > 4; // else it is in place of a point
      encoding.x.value = isLong || !isBeside ? 0 : room;
      Object.assign(mark, { align: isLong || !isBeside ? "left" : "right", dy: isLong || isBeside ? -14 : 0 });
    }
    const { y } = part.layer[0].encoding;
    const mark = { ...beside[0].mark, align: "left", dy: isLong ? -30 : -14, fontWeight: 600, limit: room };
    const encoding = { x: { value: 0 }, y, text: { field: "label", type: "nominal" } };
    part.layer.push({ data: { values: labels }, mark, encoding });
  }
}

async function draw(figure) {
  const drawing = figure.querySelector("svg");
  const text = figure.querySelector("script").textContent;
  const spec = JSON.parse(text);
  const extra = Math.floor(figure.clientWidth - drawing.viewBox.baseVal.width);
  figure.drawnAt = figure.clientWidth;
  widen(spec, Math.max(extra, -80));
  if (extra < 0) stack(spec, figure.clientWidth - 44); // without its padding
  const place = document.createElement("div");
  // the interpreter of expressions (`ast`) needs no evaluation of texts as code, which the page's policy forbids
  const options = {
    ast: true, actions: false, defaultStyle: false, hover: false, logLevel: 1, renderer: "svg", tooltip: false,
  };
  const { view } = await window.vegaEmbed(place, spec, options);
  const svg = place.querySelector("svg");
  for (const part of svg.querySelectorAll("[role]:not([aria-label])")) { // groups of marks, to which Vega gives no name
    part.removeAttribute("role");
    part.removeAttribute("aria-roledescription");
  }
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", drawing.getAttribute("aria-label"));
  figure.querySelector("div")?.remove();
  drawing.after(place);
  figure.classList.add("live");
  named(svg);
  const kinds = {
    SVG: async () => new Blob([await view.toSVG()], { type: "image/svg+xml" }),
    PNG: async () => {
      const canvas = await view.toCanvas(2);
      return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
    },
    CSV: async () => new Blob([csv(spec)], { type: "text/csv" }),
    JSON: async () => new Blob([text], { type: "application/json" }),
  };
  const buttons = Object.entries(kinds).map(([kind, make]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.title = `Save this chart as ${kind}`;
    button.addEventListener("click", async () => save(`${figure.id}.${kind.toLowerCase()}`, await make()));
    return button;
  });
  figure.querySelector(".save").replaceChildren(...buttons);
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((each) => each.isIntersecting)) {
    near.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "400px" });
document.querySelectorAll("figure:has(script)").forEach((figure) => near.observe(figure));

let waiting = 0;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    for (const figure of document.querySelectorAll("figure.live")) {
      if (figure.clientWidth && figure.clientWidth !== figure.drawnAt) draw(figure);
    }
  }, 200);
});
