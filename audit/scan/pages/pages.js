"use strict";
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    let told = "Copied";
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch { told = "Select it by hand"; }
    button.textContent = told;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

const SCREEN = 50, CARDS_OF_PAGE = 25, SEVERITIES = ["high", "medium", "low", "info"], OPEN = ["new", "returned", "known"];
const element = (name, text = "", kind = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
};
const byId = (id) => document.getElementById(id);

const list = (data) => {
  const { columns, first } = data, count = columns.class.length, body = byId("list").tBodies[0];
  const fields = ["q", "severity", "state", "kind", "tenant"].map(byId), form = byId("q").form;
  const messages = data.messages.map((text) => text.toLowerCase());
  let chosen = [], screen = 0;

  const message = (row) => {
    const numbers = String(columns.numbers[row] || "").split("|");
    return data.messages[columns.message[row]].replaceAll("\u0001", () => numbers.shift());
  };
  const line = (row) => {
    const [title, severity, state] = data.classes[columns.class[row]], made = element("tr"), card = columns.card[row];
    const cells = Array.from({ length: 5 }, () => made.appendChild(element("td")));
    cells[0].append(element("span", SEVERITIES[severity], `sev ${SEVERITIES[severity]}`));
    cells[1].append(element("span", state, `state ${state}`));
    const name = element(card < 0 ? "span" : "a", title);
    if (card >= 0) name.href = `entries/${String(Math.floor(card / CARDS_OF_PAGE) + 1).padStart(4, "0")}.html#f${first + row}`;
    cells[2].append(name, element("p", message(row), "msg"));
    if (columns.id[row]) cells[3].append(element("code", columns.id[row]));
    if (columns.more[row]) cells[3].append(element("small", ` and ${columns.more[row].toLocaleString("en")} more`));
    cells[4].textContent = data.tenants[columns.tenant[row]];
    return made;
  };
  const show = () => {
    const screens = Math.max(Math.ceil(chosen.length / SCREEN), 1);
    screen = Math.min(Math.max(screen, 0), screens - 1);
    body.replaceChildren(...chosen.slice(screen * SCREEN, (screen + 1) * SCREEN).map(line));
    byId("shown").textContent = `${chosen.length.toLocaleString("en")} of ${count.toLocaleString("en")}`;
    byId("screen").textContent = `${screen + 1} of ${screens.toLocaleString("en")}`;
    byId("before").disabled = screen === 0;
    byId("after").disabled = screen === screens - 1;
  };
  const filter = () => {
    const [q, severity, state, kind, tenant] = fields.map((field) => field.value.trim());
    const text = q.toLowerCase(), digits = /\d/.test(text);
    const classes = data.classes.map(([title, bad, life]) => (!severity || SEVERITIES[bad] === severity)
      && (!state || life === state || state === "open" && OPEN.includes(life)) && (!kind || title === kind));
    const exact = data.tenants.includes(tenant), wanted = tenant.toLowerCase();
    const tenants = data.tenants.map((name) => !tenant || (exact ? name === tenant : name.toLowerCase().includes(wanted)));
    const told = messages.map((pattern) => pattern.includes(text));
    chosen = [];
    for (let row = 0; row < count; row++) {
      if (classes[columns.class[row]] && tenants[columns.tenant[row]] && (told[columns.message[row]]
        || columns.id[row].toLowerCase().includes(text) || digits && message(row).toLowerCase().includes(text))) chosen.push(row);
    }
    screen = 0;
    show();
  };
  const remember = () => {
    const kept = new URLSearchParams(fields.filter((field) => field.value).map((field) => [field.id, field.value]));
    history.replaceState(null, "", `#${kept}`);
  };
  const recall = () => {
    const kept = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) field.value = kept.get(field.id) ?? "";
    filter();
  };
  const offer = (id, values) => byId(id).append(...values.map((value) => Object.assign(element("option", value), { value })));

  offer("severity", SEVERITIES);
  offer("state", ["new", "returned", "known", "accepted", "fixed"]);
  offer("kind", [...new Set(data.classes.map(([title]) => title))].sort());
  offer("tenants", data.tenants.slice(0, 1000));
  form.hidden = document.querySelector(".pager").hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { remember(); filter(); });
  form.addEventListener("reset", () => setTimeout(() => { remember(); filter(); }));
  byId("before").addEventListener("click", () => { screen--; show(); });
  byId("after").addEventListener("click", () => { screen++; show(); });
  addEventListener("hashchange", recall);
  recall();
};
if (byId("rows")) list(JSON.parse(byId("rows").textContent));
