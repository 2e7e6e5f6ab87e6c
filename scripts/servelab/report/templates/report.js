"use strict";
// Sorts tables and copies commands. The page shows every table and command without this script too.

const NUMBER = /^[+-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?/;

function shown(cell) {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll("small, abbr").forEach((part) => part.remove());
  return copy.textContent.trim().replace(/\u2212/g, "-");
}

function number(text) {
  const found = NUMBER.exec(text);
  return found ? Number(found[0].replace(/,/g, "")) : NaN;
}

function order(rows, column, up) {
  const keys = new Map(rows.map((row) => [row, shown(row.cells[column])]));
  const filled = [...keys.values()].filter((text) => text && text !== "–");
  const numeric = filled.filter((text) => !Number.isNaN(number(text))).length > filled.length / 2;
  const missing = (text) => !text || text === "–" || (numeric && Number.isNaN(number(text)));
  return rows.sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const way = numeric ? number(a) - number(b) : a.localeCompare(b, "en", { numeric: true });
    return up ? way : -way;
  });
}

for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  table.classList.add("sortable");
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...order([...body.rows], column, up));
    });
  });
}

// A table of class `board` gets a field for text and a choice for each column whose texts repeat.
for (const table of document.querySelectorAll("table.board")) {
  const rows = [...table.tBodies[0].rows];
  const bar = document.createElement("p");
  bar.className = "filter";
  const found = document.createElement("span");
  const chosen = new Map();
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter rows";
  field.setAttribute("aria-label", "Filter rows by text");
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word)) &&
        [...chosen].every(([column, wanted]) => !wanted || shown(row.cells[column]) === wanted);
      row.hidden = !fits;
      count += fits;
    }
    found.textContent = `${count} of ${rows.length} rows`;
  };
  field.addEventListener("input", show);
  bar.append(field);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const texts = [...new Set(rows.map((row) => shown(row.cells[column])))].sort();
    if (texts.length < 2 || texts.length > rows.length / 2 || !Number.isNaN(number(texts[texts.length - 1]))) return;
    const select = document.createElement("select");
    const name = head.textContent.trim();
    select.setAttribute("aria-label", name);
    select.append(new Option(`${name}: all`, ""), ...texts.map((text) => new Option(text, text)));
    select.addEventListener("change", () => { chosen.set(column, select.value); show(); });
    bar.append(select);
  });
  bar.append(found);
  table.parentElement.before(bar);
  show();
}

async function copy(text, place) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(place);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
}

for (const box of document.querySelectorAll("pre.copy")) {
  const code = box.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copy(code.textContent, code);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  box.append(button);
}
