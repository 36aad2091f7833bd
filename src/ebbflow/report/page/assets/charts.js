// Figures: a chart, what it shows in a sentence, and its data as a table.
// Charts are drawn one after another, so that the page can be used meanwhile.

const PAPER_WIDTH = 680;
const CONFIG = { displayModeBar: false, displaylogo: false, showTips: false, doubleClick: "reset" };
// The charts' own copy of the style sheet's colours: paper asks for the light ones before the
// style sheet has changed.
const PALETTES = {
    light: {
        ink: "#1b2126",
        muted: "#55616b",
        line: "#e1e4e0",
        strong: "#a9b1b0",
        surface: "#ffffff",
        ground: "#fbfbf9",
        shade: "#eceeea",
        good: ["#d5e6f3", "#0072b2"],
        bad: ["#f9dcc9", "#b24a00"],
        joined: "#0f766e",
        stayed: "#b5d2ce",
        returned: "#6b9bcb",
        absent: "#f0f1ee",
    },
    dark: {
        ink: "#e9ecee",
        muted: "#a3aeb7",
        line: "#2d3439",
        strong: "#58636b",
        surface: "#1a1e21",
        ground: "#121517",
        shade: "#22292d",
        good: ["#1b3547", "#2a74aa"],
        bad: ["#40281a", "#ad5a24"],
        joined: "#4cc7b8",
        stayed: "#2b4f4b",
        returned: "#5b8fc4",
        absent: "#1a1e21",
    },
};

const charts = new Map();
let printing = false;
let theme = "light";

const palette = () => PALETTES[printing ? "light" : theme];
const colourOf = (look) => (printing || theme === "light" ? look.light : look.dark);

function faded(colour, opacity) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${opacity})`;
}

// A figure of its own name. It is made once; filled anew, it keeps its place, zoom and table.
//   title      what stands above the chart
//   tools      controls beside the title
//   height     of the chart in pixels, by its width
//   spec       (width) => {traces, layout}
//   summary    () => the chart in words, for those who do not see it
//   note       () => what stands below the chart
//   columns    of the table with the chart's data, whose rows are rows()
function figure(name, parts) {
    let chart = charts.get(name);
    if (!chart) {
        chart = { name, plot: h("div", { class: "plot", role: "img" }), zoom: 0, stale: true };
        chart.reset = h(
            "button",
            { type: "button", class: "quiet", hidden: true, onclick: () => unzoom(chart) },
            "Show all again",
        );
        charts.set(name, chart);
        observer.observe(chart.plot);
    }
    Object.assign(chart, parts, { used: true });
    chart.caption = h("figcaption", {});
    chart.tools = h("div", { class: "tools" }, parts.tools ?? [], chart.reset);
    chart.paperLegend = h("ul", {
        class: parts.overview ? "legend" : "legend paper",
        "aria-hidden": "true",
    });
    chart.figure = h(
        "figure",
        {},
        h("div", { class: "figure-head" }, h("p", {}, parts.title), chart.tools),
        chart.plot,
        parts.legend ?? null,
        chart.paperLegend,
        chart.caption,
        parts.columns
            ? disclosure(`data ${name}`, "Data as a table", () =>
                  table(`data ${name}`, {
                      columns: parts.columns(),
                      rows: parts.rows(),
                      label: `Data: ${parts.title}`,
                      tall: true,
                  }),
              )
            : null,
    );
    describe(chart);
    reserve(chart);
    return chart.figure;
}

const widthOf = (chart) => (printing ? PAPER_WIDTH : chart.plot.clientWidth || 640);

// The chart's place is kept free, so that nothing jumps when it is drawn.
function reserve(chart) {
    chart.plot.style.minHeight = `${chart.height(widthOf(chart))}px`;
}

function describe(chart) {
    chart.plot.setAttribute("aria-label", chart.summary());
    chart.caption.textContent = chart.note ? chart.note() : "";
    const run = currentRun();
    const methods = chart.overview ? chart.methods() : shownMethods(run);
    chart.paperLegend.replaceChildren(
        ...(chart.legendless
            ? []
            : methods.map((method) => h("li", {}, swatch(page.looks[method]), method))),
    );
}

function draw(chart) {
    const width = widthOf(chart);
    const height = chart.height(width);
    const { traces, layout } = chart.spec(width);
    chart.drawnWidth = width;
    chart.stale = false;
    describe(chart);
    chart.plot.style.minHeight = `${height}px`;
    Plotly.react(chart.plot, traces, { ...frame(width, height, chart), ...layout }, CONFIG);
    if (!chart.listening) {
        chart.listening = true;
        chart.plot.on("plotly_relayout", (change) => {
            const zoomed = Object.keys(change).some((key) => key.includes(".range["));
            if (zoomed) chart.reset.hidden = false;
            else if (Object.keys(change).some((key) => key.includes("autorange")))
                chart.reset.hidden = true;
        });
    }
}

function frame(width, height, chart) {
    const colours = palette();
    return {
        width,
        height,
        autosize: false,
        // The same name keeps the reader's zoom when new data come in.
        uirevision: `${chart.name} ${chosen.run} ${chart.zoom}`,
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: {
            family: getComputedStyle(document.body).fontFamily,
            size: 12.5,
            color: colours.muted,
        },
        hoverlabel: {
            bgcolor: colours.surface,
            bordercolor: colours.strong,
            align: "left",
            font: {
                family: getComputedStyle(document.body).fontFamily,
                size: 12.5,
                color: colours.ink,
            },
        },
        showlegend: false,
        // A finger scrolls the page; sessions are chosen by the list above the chart.
        dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
        margin: { l: 44, r: 10, t: 12, b: 36, pad: 0 },
    };
}

function axis(more = {}) {
    const colours = palette();
    return {
        gridcolor: colours.line,
        linecolor: colours.strong,
        tickcolor: colours.strong,
        zeroline: false,
        showline: false,
        ticks: "",
        automargin: false,
        fixedrange: false,
        ...more,
    };
}

function unzoom(chart) {
    chart.zoom += 1;
    chart.reset.hidden = true;
    chart.unzoomed?.();
    later(chart);
}

// --- one after another ---

const waiting = new Set();
let pumping = false;

function later(chart) {
    waiting.add(chart);
    document.documentElement.dataset.drawn = "no";
    if (!pumping) {
        pumping = true;
        setTimeout(pump);
    }
}

function pump() {
    if (typeof Plotly === "undefined") {
        setTimeout(pump, 10);
        return;
    }
    const next = [...waiting].find(inView) ?? (sparing() ? null : [...waiting][0]);
    if (!next) {
        // They are drawn when they come into view.
        for (const chart of waiting) chart.stale = true;
        waiting.clear();
    } else {
        waiting.delete(next);
        const began = performance.now();
        if (next.plot.isConnected) draw(next);
        next.took = performance.now() - began;
        performance.mark("ebbflow chart");
    }
    if (waiting.size) setTimeout(pump);
    else {
        pumping = false;
        document.documentElement.dataset.drawn = "yes";
        performance.mark("ebbflow charts");
    }
}

function inView(chart) {
    const box = chart.plot.getBoundingClientRect();
    return box.bottom > 0 && box.top < innerHeight;
}

// What has changed out of sight is drawn when it comes into view.
const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
        const chart =
            entry.isIntersecting && [...charts.values()].find((c) => c.plot === entry.target);
        if (chart && (chart.stale || chart.drawnWidth !== widthOf(chart))) later(chart);
    }
});

function redraw({ onlyInView = false } = {}) {
    for (const chart of charts.values()) {
        if (!chart.used) continue;
        if (onlyInView && !inView(chart)) chart.stale = true;
        else later(chart);
    }
}

let resizing = 0;
addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
        for (const chart of charts.values()) {
            if (chart.used && chart.drawnWidth !== widthOf(chart)) reserve(chart);
        }
        redraw({ onlyInView: true });
    }, 150);
});

// Paper is white, whatever the screen is, and has a width of its own.
function print(on) {
    if (printing === on || typeof Plotly === "undefined") return;
    printing = on;
    if (on) catchUp();
    for (const chart of charts.values()) if (chart.used && chart.plot.isConnected) draw(chart);
}
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
matchMedia("print").addEventListener("change", (event) => print(event.matches));

// --- several panels in one chart ---

// Places of `count` panels in rows; axis names are as the charting library wants them.
function panels(
    count,
    columns,
    width,
    { rowHeight, gapX = 30, gapY = 56, left = 40, right = 8, top = 26, bottom = 34 },
) {
    const rows = Math.max(1, Math.ceil(count / columns));
    const height = top + bottom + rows * rowHeight + (rows - 1) * gapY;
    const inner = width - left - right;
    const each = (inner - (columns - 1) * gapX) / columns;
    const body = height - top - bottom;
    const places = Array.from({ length: count }, (_, n) => {
        const [row, column] = [Math.floor(n / columns), n % columns];
        const x0 = column * (each + gapX);
        const y0 = row * (rowHeight + gapY);
        return {
            n,
            row,
            column,
            width: each,
            x: [x0 / inner, (x0 + each) / inner],
            y: [1 - (y0 + rowHeight) / body, 1 - y0 / body],
            suffix: n ? String(n + 1) : "",
        };
    });
    return { height, places, margin: { l: left, r: right, t: top, b: bottom, pad: 0 } };
}

function panelTitle(place, text) {
    return {
        text,
        showarrow: false,
        xref: "paper",
        yref: "paper",
        x: place.x[0],
        y: place.y[1],
        xanchor: "left",
        yanchor: "bottom",
        yshift: 5,
        font: { size: 12.5, color: palette().ink },
    };
}
