"use strict";
// The table of reports: a click on a column's name sorts by it, buttons show one verdict. Without this script it is a plain table.
(() => {
  const table = document.querySelector("table.reports");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  // NaN, which stands for "none", is last in both directions.
  const compare = (a, b, up) => {
    if (typeof a === "number" && typeof b === "number") {
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return up ? a - b : b - a;
    }
    const order = String(a).localeCompare(String(b), "en", { numeric: true });
    return up ? order : -order;
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => compare(value(a, column), value(b, column), up));
      body.append(...rows);
    });
  });

  const filter = document.querySelector(".filter");
  const buttons = [...filter.querySelectorAll("button")];
  const show = (wanted) => {
    for (const row of rows) row.hidden = wanted !== "" && row.dataset.verdict !== wanted;
    for (const one of buttons) one.setAttribute("aria-pressed", String(one.dataset.verdict === wanted));
  };
  for (const one of buttons) one.addEventListener("click", () => show(one.dataset.verdict));
  show("");
  filter.hidden = false;
})();
