// All runs side by side: what differs between them, who won, and by how much.

function overviewNodes() {
    const { overview } = page;
    const names = overview.names;
    const measures = distinct(overview.rows.map((row) => row.measure));
    const numeric = overview.keys.filter((key, at) => {
        const values = overview.rows.map((row) => numberIn(row.values[at]));
        return values.every((value) => value !== null) && distinct(values).length > 2;
    });
    const options = [[null, "run by run"], ...numeric.map((key) => [key, `by ${key}`])];
    const tools = [];
    if (numeric.length)
        tools.push(picker("overview", "Show", options, numeric[0] ?? null, () => fillOverview()));
    if (measures.length > 1)
        tools.push(
            picker(
                "measure",
                "Measure",
                measures.map((m) => [m, m]),
                measures[0],
                () => fillOverview(),
            ),
        );
    const left = overview.left_out
        ? ` ${counted(overview.left_out, "more setting")} differ and are not listed.`
        : "";
    return [
        said(
            `${counted(names.length, "run")}. The lead is how much better the winner was than the next best start over the first rounds after ` +
                `a transition; it is set in bold where the winner was ahead under every one of several seeds.${left}`,
        ),
        overviewFigure(tools),
        overviewTable(),
        h("h3", { id: "details-title", tabindex: "-1" }, "Details of one run"),
        h(
            "p",
            {},
            picker(
                "run",
                "Run",
                names.map((name, n) => [n, name]),
                chosen.run,
                () => showRun(pick("run", 0)),
            ),
        ),
    ];
}

// Settings are told as JSON; the page compares those that are numbers.
function numberIn(text) {
    const value = Number(text);
    return text.trim() === "" || Number.isNaN(value) ? null : value;
}

function overviewRows() {
    const measure = pick("measure", page.overview.rows[0]?.measure);
    const rows = page.overview.rows.filter((row) => row.measure === measure);
    return rows.length ? rows : page.overview.rows;
}

const rowName = (row) => {
    const several = distinct(page.overview.rows.map((own) => own.algorithm)).length > 1;
    return several
        ? `${page.overview.names[row.run]}, ${row.algorithm}`
        : page.overview.names[row.run];
};

const overviewMethods = () =>
    distinct(overviewRows().flatMap((row) => Object.keys(row.scores))).filter(
        (method) => !chosen.hiddenMethods.has(method),
    );

function overviewFigure(tools) {
    const byKey = () => pick("overview", null);
    const rows = () => overviewRows().filter((row) => Object.keys(row.scores).length);
    return figure("overview", {
        title: `${overviewRows()[0]?.measure ?? ""} over the first rounds after a transition`,
        tools,
        overview: true,
        methods: overviewMethods,
        height: () => (byKey() === null ? 54 + 19 * Math.max(2, rows().length) : 340),
        spec: (width) =>
            byKey() === null ? runByRun(rows(), width) : overSetting(rows(), byKey()),
        summary: () =>
            `Scores of ${counted(rows().length, "run")} by start. ` +
            overviewMethods()
                .map(
                    (method) =>
                        `${method} won ${rows().filter((row) => row.winner === method).length}`,
                )
                .join(", ") +
            ".",
        note: () =>
            byKey() === null
                ? "Each row is a run."
                : "Each mark is a run; lines join the means of runs with the same value.",
        columns: () => [
            { title: "run", head: true, text: (row) => rowName(row) },
            ...overviewMethods().map((method) => ({
                title: method,
                number: true,
                text: (row) => significant(row.scores[method] ?? null, 4),
            })),
        ],
        rows,
    });
}

function runByRun(rows, width) {
    const left = Math.min(260, Math.max(70, width * 0.3));
    const most = Math.floor(left / 7);
    return {
        traces: overviewMethods().map((method) => ({
            type: "scatter",
            mode: "markers",
            x: rows.map((row) => row.scores[method] ?? null),
            y: rows.map((_, n) => n),
            hovertemplate: "%{text}<extra></extra>",
            text: rows.map(
                (row) =>
                    `${plain(rowName(row))}<br>${plain(method)}: ${significant(row.scores[method] ?? null, 4)}`,
            ),
            marker: {
                symbol: page.looks[method].marker,
                size: 8,
                color: colourOf(page.looks[method]),
            },
        })),
        layout: {
            hovermode: "closest",
            margin: { l: left, r: 12, t: 8, b: 40, pad: 4 },
            xaxis: axis({ showline: true }),
            yaxis: axis({
                range: [rows.length - 0.4, -0.6],
                tickvals: rows.map((_, n) => n),
                ticktext: rows.map((row) => plain(rowName(row), most)),
                tickfont: { size: 11, color: palette().ink },
                fixedrange: true,
            }),
        },
    };
}

function overSetting(rows, key) {
    const at = page.overview.keys.indexOf(key);
    const values = distinct(rows.map((row) => numberIn(row.values[at]))).sort((a, b) => a - b);
    const wide = values[0] > 0 && values.at(-1) / values[0] >= 30;
    const traces = overviewMethods().flatMap((method) => {
        const look = page.looks[method];
        const colour = colourOf(look);
        const own = rows.filter(
            (row) => row.scores[method] !== undefined && row.scores[method] !== null,
        );
        const means = values.map((value) =>
            mean(
                own
                    .filter((row) => numberIn(row.values[at]) === value)
                    .map((row) => row.scores[method]),
            ),
        );
        return [
            {
                type: "scatter",
                mode: "lines",
                x: values,
                y: means,
                hoverinfo: "skip",
                line: { color: colour, dash: look.dash, width: 1.9 },
                connectgaps: true,
            },
            {
                type: "scatter",
                mode: "markers",
                x: own.map((row) => numberIn(row.values[at])),
                y: own.map((row) => row.scores[method]),
                hovertemplate: "%{text}<extra></extra>",
                text: own.map(
                    (row) =>
                        `${plain(rowName(row))}<br>${plain(method)}: ${significant(row.scores[method], 4)}`,
                ),
                marker: { symbol: look.marker, size: 6, color: colour, opacity: 0.55 },
            },
        ];
    });
    return {
        traces,
        layout: {
            hovermode: "closest",
            margin: { l: 44, r: 12, t: 10, b: 44, pad: 0 },
            xaxis: axis({
                type: wide ? "log" : "linear",
                showline: true,
                title: { text: plain(key), standoff: 8, font: { size: 12.5 } },
                ...(values.length <= 8 ? { tickvals: values, ticktext: values.map(String) } : {}),
            }),
            yaxis: axis({ nticks: 6 }),
        },
    };
}

function overviewTable() {
    const { overview } = page;
    const several = distinct(overview.rows.map((row) => row.algorithm)).length > 1;
    const measures = distinct(overview.rows.map((row) => row.measure)).length > 1;
    return table("overview", {
        columns: [
            {
                title: "run",
                head: true,
                value: (row) => overview.names[row.run],
                text: (row) =>
                    h(
                        "button",
                        { type: "button", class: "link", onclick: () => showRun(row.run, true) },
                        overview.names[row.run],
                    ),
            },
            ...(several ? [{ title: "algorithm", text: (row) => row.algorithm }] : []),
            ...overview.keys.map((key, at) => ({
                title: key,
                text: (row) => row.values[at],
                value: (row) => numberIn(row.values[at]) ?? row.values[at],
            })),
            ...(measures ? [{ title: "measure", text: (row) => row.measure }] : []),
            {
                title: "winner",
                text: (row) =>
                    row.winner
                        ? h("span", {}, swatch(page.looks[row.winner]), " ", row.winner)
                        : DASH,
                value: (row) => row.winner,
            },
            {
                title: "lead",
                number: true,
                best: (row) => row.clear,
                text: (row) => significant(row.lead, 3),
                value: (row) => row.lead,
            },
            {
                title: "interval",
                number: true,
                value: (row) => row.low,
                text: (row) =>
                    row.low === null
                        ? DASH
                        : `${significant(row.low, 3)} to ${significant(row.high, 3)}`,
            },
            { title: "state", text: (row) => row.state },
        ],
        rows: overview.rows.map((row) => ({ ...row, chosen: row.run === chosen.run })),
        sortable: true,
        tall: overview.rows.length > 16,
        label: "All runs",
    });
}
