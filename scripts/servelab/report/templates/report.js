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
    if (!head.textContent.trim()) return;
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
