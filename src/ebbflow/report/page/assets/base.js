// What every other script uses: elements, numbers, texts, and what the reader has chosen.

const page = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);

// --- elements ---

// Texts become text nodes, never markup, so that a name cannot be anything but a name.
function h(tag, props = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(props)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name === "class") element.className = value;
        else if (name === "value" || name === "checked" || name === "open") element[name] = value;
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

function svg(tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
}

const said = (text) => h("p", { class: "said" }, text);
const nothing = (text) => h("p", { class: "none" }, text);

// --- numbers ---

const DASH = "–";

// A minus as long as a plus, which is not taken for a dash.
const signed = (text) => text.replace("-", "−");

function significant(value, digits) {
    return value === null ? DASH : signed(String(Number(value.toPrecision(digits))));
}

const whole = (value) => value.toLocaleString("en-GB");

function counted(count, noun) {
    return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// A value of the run's measure, as tables show it.
function score(run, value) {
    if (value === null || value === undefined) return DASH;
    return run.judge.percent ? signed(value.toFixed(2)) : significant(value, 4);
}

const withUnit = (run, value) => (value === null ? DASH : score(run, value) + run.judge.unit);

function range(run, low, high) {
    return low === null || high === null ? DASH : `${score(run, low)} to ${score(run, high)}`;
}

const PREFIXES = { "-3": "n", "-2": "µ", "-1": "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T" };

// The power of a thousand by which a value is written; whole seconds have no prefix.
function thousands(value, unit) {
    if (!value) return 0;
    const step = Math.floor(Math.log10(Math.abs(value)) / 3);
    return Math.max(-3, Math.min(unit === "s" ? 0 : 4, step));
}

function amount(value, unit) {
    if (value === null || value === undefined) return DASH;
    if (value === 0) return `0 ${unit}`;
    const step = thousands(value, unit);
    const scaled = value / 1000 ** step;
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(scaled))));
    return `${scaled.toFixed(Math.min(digits, 4))} ${PREFIXES[step]}${unit}`;
}

function duration(seconds) {
    if (seconds < 60) return `${significant(seconds, 3)} s`;
    const minutes = Math.round(seconds / 60);
    if (minutes < 60) return `${minutes} min`;
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : null);
const distinct = (values) => [...new Set(values)];

// --- texts ---

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function listed(names) {
    return names.length < 2
        ? names.join("")
        : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

// The charting library reads a few tags in texts; a name must not be taken for one.
function plain(text, most = 60) {
    let short = String(text);
    if (short.length > most) short = `${short.slice(0, most - 12)} … ${short.slice(-9)}`;
    return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// --- what the reader has chosen ---

const chosen = {
    run: 0,
    hiddenMethods: new Set(),
    hiddenSeeds: new Set(),
    singleSeeds: false,
    // By the name of the control: they survive when the page is filled anew.
    picks: new Map(),
    open: new Set(),
    sorting: new Map(),
    unfolded: new Set(),
};

const pick = (name, usual) => (chosen.picks.has(name) ? chosen.picks.get(name) : usual);

const slug = (name) => name.replace(/\W/g, "-");

// A select that is remembered by its name; `options` are [value, text] pairs.
function picker(name, label, options, usual, changed) {
    const id = `pick-${slug(name)}`;
    const values = options.map(([value]) => value);
    const current = values.includes(pick(name, usual)) ? pick(name, usual) : usual;
    chosen.picks.set(name, current);
    const select = h(
        "select",
        {
            id,
            onchange: (event) => {
                chosen.picks.set(name, values[event.target.selectedIndex]);
                changed();
            },
        },
        options.map(([, text]) => h("option", {}, text)),
    );
    select.selectedIndex = values.indexOf(current);
    return h("label", { class: "pick", for: id }, label, select);
}

function disclosure(name, title, fill) {
    const body = h("div", {});
    const details = h("details", { open: chosen.open.has(name) }, h("summary", {}, title), body);
    const filled = () => {
        if (details.open && !body.childElementCount) body.append(...[fill()].flat());
    };
    filled();
    details.addEventListener("toggle", () => {
        if (details.open) chosen.open.add(name);
        else chosen.open.delete(name);
        filled();
    });
    return details;
}
