"use strict";
const table = document.querySelector("table.index"), body = table.tBodies[0], rows = [...body.rows];
const find = document.getElementById("find"), show = document.getElementById("show");
const value = (row, column) => {
  const cell = row.cells[column], number = cell.dataset.v ?? (cell.className && cell.textContent.replaceAll(",", ""));
  return number ? Number(number) : cell.textContent.toLowerCase();
};
const filter = () => {
  const wanted = find.value.toLowerCase();
  let shown = 0;
  for (const row of rows) {
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted) || (show.value !== "" && row.className === "");
    shown += !row.hidden;
  }
  document.getElementById("shown").textContent = `${shown.toLocaleString("en")} shown`;
};
const sort = (heading) => {
  const descending = heading.getAttribute("aria-sort") === "ascending" || !heading.hasAttribute("aria-sort") && heading.className === "num";
  for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const keyed = rows.map((row) => [value(row, heading.cellIndex), row]);
  keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (descending ? -1 : 1));
  body.append(...keyed.map(([, row]) => row));
};
for (const heading of table.tHead.rows[0].cells) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sort(heading));
  heading.append(button);
}
document.querySelector(".controls").hidden = false;
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
find.addEventListener("input", filter);
show.addEventListener("change", filter);
filter();
