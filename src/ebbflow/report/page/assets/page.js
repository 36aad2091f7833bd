// Puts the page together, and does what the reader asks for.

// --- filling ---

// Fills one section anew. What the reader has opened, chosen and focused stays as it is.
// A chart that is drawn already is drawn again unless that is to wait.
function fill(id, draw = true) {
    const body = document.querySelector(`#${id} > .body`);
    const focused = body.contains(document.activeElement) ? document.activeElement.id : "";
    body.replaceChildren(...(id === "overview" ? overviewNodes() : sections[id](currentRun())));
    if (focused) byId(focused)?.focus();
    forgetUnused();
    behind.delete(id);
    for (const chart of charts.values()) {
        if (!body.contains(chart.plot)) continue;
        if (draw || chart.drawnWidth === undefined) later(chart);
        else chart.stale = true;
    }
}

const fillOverview = () => fill("overview");

// A chart that another run had and this one does not have is not drawn any more.
function forgetUnused() {
    for (const [name, chart] of charts) {
        if (chart.plot.isConnected) continue;
        waiting.delete(chart);
        observer.unobserve(chart.plot);
        if (typeof Plotly !== "undefined") Plotly.purge(chart.plot);
        charts.delete(name);
    }
}

// Sections whose content is newer than what they show; they are filled when they come into view.
const behind = new Set();
const NEAR = 200;

function isNear(id) {
    const box = byId(id).getBoundingClientRect();
    return box.bottom > -NEAR && box.top < innerHeight + NEAR;
}

const approached = new IntersectionObserver(
    (entries) => {
        for (const { isIntersecting, target } of entries)
            if (isIntersecting && behind.has(target.id)) fill(target.id);
    },
    { rootMargin: `${NEAR}px 0px` },
);
for (const id of Object.keys(sections)) approached.observe(byId(id));

function catchUp() {
    for (const id of [...behind]) fill(id);
}

function fillAll({ onlyNear = false, draw = true } = {}) {
    const run = currentRun();
    const [x, y] = [scrollX, scrollY];
    titles(run);
    const all = Object.keys(sections);
    const now = onlyNear ? all.filter(isNear) : all;
    for (const id of all) if (!now.includes(id)) behind.add(id);
    for (const id of now) fill(id, draw);
    fillControls(run);
    // At once, without the smooth scrolling that links have.
    if (y) scrollTo({ left: x, top: y, behavior: "instant" });
}

function titles(run) {
    const { headline: facts } = run;
    byId("title").textContent = page.overview ? page.title : run.name;
    byId("lede").textContent = page.overview
        ? ""
        : [
              facts.dataset,
              facts.partition === "auto" ? "" : `${facts.partition} partition`,
              listed(run.algorithms),
          ]
              .filter(Boolean)
              .join(" · ");
    showState();
    const question =
        run.state.state === "finished" ? "Which start won" : "Which start is ahead so far";
    byId("verdict-title").textContent = page.overview
        ? `${run.name}: ${question.toLowerCase()}`
        : question;
    document.querySelector('.contents a[href="#verdict"]').textContent = question;
    byId("accuracy-title").textContent = `${capital(run.judge.short)} over all rounds`;
    document.querySelector('.contents a[href="#accuracy"]').textContent =
        byId("accuracy-title").textContent;
}

function showRun(place, jump = false) {
    chosen.run = place;
    chosen.picks.set("run", place);
    for (const name of [...chosen.picks.keys()]) if (perRun(name)) chosen.picks.delete(name);
    fillAll();
    fill("overview");
    if (jump) {
        byId("details-title").scrollIntoView();
        byId("details-title").focus({ preventScroll: true });
    }
}

// Choices of sessions and seeds mean nothing in another run.
const perRun = (name) => !["overview", "measure", "run"].includes(name);

// --- what the charts show ---

function fillControls(run) {
    const box = byId("controls");
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.name : "";
    const changed = () => {
        for (const chart of charts.values()) if (chart.used) reserve(chart);
        redraw();
        refreshTables();
    };
    const toggle = (set, value) => (on) => {
        if (on) set.delete(value);
        else set.add(value);
        changed();
    };
    const groups = [
        h(
            "fieldset",
            {},
            h("legend", {}, "Starts"),
            run.methods.map((method) =>
                chip(
                    "checkbox",
                    method,
                    !chosen.hiddenMethods.has(method),
                    toggle(chosen.hiddenMethods, method),
                    { picture: swatch(run.looks[method]) },
                ),
            ),
        ),
    ];
    if (run.seeds.length > 1) {
        groups.push(
            h(
                "fieldset",
                {},
                h("legend", {}, "Seeds"),
                run.seeds.map((seed) =>
                    chip(
                        "checkbox",
                        String(seed),
                        !chosen.hiddenSeeds.has(seed),
                        toggle(chosen.hiddenSeeds, seed),
                    ),
                ),
            ),
            h(
                "fieldset",
                {},
                h("legend", {}, "Lines"),
                [
                    ["mean", false],
                    ["each seed", true],
                ].map(([text, single]) =>
                    chip(
                        "radio",
                        text,
                        chosen.singleSeeds === single,
                        () => {
                            chosen.singleSeeds = single;
                            changed();
                        },
                        { group: "lines" },
                    ),
                ),
            ),
        );
    }
    box.replaceChildren(...groups);
    box.hidden = run.methods.length < 2 && run.seeds.length < 2;
    for (const input of box.querySelectorAll("input")) {
        input.dataset.name = `${input.type} ${input.parentElement.textContent}`;
        if (input.dataset.name === focused) input.focus();
    }
}

// Open tables of data follow what is shown.
function refreshTables() {
    for (const chart of charts.values()) {
        const details = chart.figure?.querySelector("details");
        if (!details || !chart.columns) continue;
        const body = details.lastElementChild;
        if (!details.open) body.replaceChildren();
        else
            body.replaceChildren(
                table(`data ${chart.name}`, {
                    columns: chart.columns(),
                    rows: chart.rows(),
                    label: `Data: ${chart.title}`,
                    tall: true,
                }),
            );
    }
}

// --- light and dark ---

function stored() {
    try {
        return localStorage.getItem("ebbflow-theme");
    } catch {
        return null;
    }
}

function setTheme(name, keep) {
    theme = name;
    if (keep) {
        document.documentElement.dataset.theme = name;
        try {
            localStorage.setItem("ebbflow-theme", name);
        } catch {
            // Not remembered, then: a file may not be allowed to.
        }
    }
    const button = byId("theme");
    button.hidden = false;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
}

const darkness = matchMedia("(prefers-color-scheme: dark)");
const wished = ["light", "dark"].find((name) => name === stored());
setTheme(wished ?? (darkness.matches ? "dark" : "light"), wished !== undefined);
byId("theme").addEventListener("click", () => {
    setTheme(theme === "dark" ? "light" : "dark", true);
    redraw();
});
darkness.addEventListener("change", (event) => {
    if (printing || document.documentElement.dataset.theme) return;
    setTheme(event.matches ? "dark" : "light", false);
    redraw();
});

// --- where the reader is ---

const links = [...document.querySelectorAll(".contents a")];
const places = new IntersectionObserver(
    (entries) => {
        for (const entry of entries) entry.target.dataset.seen = entry.isIntersecting ? "yes" : "";
        const current = links.find((link) => byId(link.hash.slice(1))?.dataset.seen === "yes");
        for (const link of links) {
            if (link === current) link.setAttribute("aria-current", "true");
            else link.removeAttribute("aria-current");
        }
    },
    { rootMargin: "-20% 0px -60% 0px" },
);
for (const section of document.querySelectorAll("main > section")) places.observe(section);

// --- begin ---

if (page.overview) fill("overview");
fillAll();
