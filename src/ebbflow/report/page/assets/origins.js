// Where each start came from: the past models that were mixed; and which sessions are alike.

sections.origins = (run) => {
    if (!run.origins.starts.length) return [nothing("No session has begun yet.")];
    return [
        said(
            "Each column is a session and each row a model of the past: how much of it the session's start consists of. " +
                "Weights add up to one; the learned start may also subtract (orange).",
        ),
        ...run.algorithms.map((algorithm) => originFigure(run, algorithm)),
    ];
};

// Parts in the order of time: what was there before any session, then session by session.
function partOrder(part) {
    const [kind, session] = part.split(" ");
    if (kind === "final" || kind === "start")
        return 10 + Number(session) * 2 + (kind === "final" ? 1 : 0);
    return { initial: 0, pilot: 1, carried: 2 }[kind] ?? 3;
}

function partName(part) {
    const [kind, session] = part.split(" ");
    if (kind === "final") return `end of ${session}`;
    if (kind === "start") return `start of ${session}`;
    return (
        { initial: "initial", pilot: "pilot", carried: "carried over", others: "others" }[kind] ??
        part
    );
}

// Mean weights over the seeds that are chosen, by part and session.
function weightsOf(run, algorithm, method) {
    const seed = pick(`origins ${algorithm}`, null);
    const seeds = seed === null ? shownSeeds(run) : [seed];
    const own = run.origins.starts.filter(
        (start) =>
            start.algorithm === algorithm && start.method === method && seeds.includes(start.seed),
    );
    const weights = new Map();
    const counts = new Map();
    for (const start of own) {
        counts.set(start.session, (counts.get(start.session) ?? 0) + 1);
        for (const [part, weight] of Object.entries(start.parts)) {
            if (!weights.has(part)) weights.set(part, new Map());
            const bySession = weights.get(part);
            bySession.set(start.session, (bySession.get(start.session) ?? 0) + (weight ?? 0));
        }
    }
    for (const bySession of weights.values()) {
        for (const [session, total] of bySession)
            bySession.set(session, total / counts.get(session));
    }
    return { weights, sessions: [...counts.keys()].sort((a, b) => a - b) };
}

function originFigure(run, algorithm) {
    const name = `origins ${algorithm}`;
    const options = [
        [null, "mean of the seeds shown"],
        ...run.seeds.map((seed) => [seed, `seed ${seed}`]),
    ];
    const methods = () => shownMethods(currentRun());
    const parts = () =>
        distinct(
            methods().flatMap((method) => [
                ...weightsOf(currentRun(), algorithm, method).weights.keys(),
            ]),
        ).sort((a, b) => partOrder(a) - partOrder(b));
    const columns = (width) => Math.min(methods().length || 1, width < 620 ? 1 : 2);
    const rowHeight = () =>
        Math.min(520, Math.max(70, parts().length * (parts().length > 40 ? 6.5 : 17)));
    const grid = (width) =>
        panels(methods().length, columns(width), width, {
            rowHeight: rowHeight(),
            gapX: 22,
            gapY: 66,
            left: 88,
            top: 26,
            bottom: 36,
        });
    return figure(name, {
        title:
            run.algorithms.length > 1
                ? `${algorithm}: weights of past models`
                : "Weights of past models",
        tools:
            run.seeds.length > 1
                ? [picker(name, "Under", options, null, () => later(charts.get(name)))]
                : [],
        legendless: true,
        height: (width) => grid(width).height,
        spec: (width) => originChart(currentRun(), algorithm, methods(), parts(), grid(width)),
        summary: () => originInWords(currentRun(), algorithm),
        note: () =>
            "Blue: taken with this weight; orange: subtracted. Each start has a colour scale of its own.",
        columns: () => [
            { title: "start", head: true, text: (row) => row.method },
            { title: "session", number: true, text: (row) => String(row.session) },
            { title: "model", text: (row) => currentRun().origins.words[row.part] ?? row.part },
            { title: "weight", number: true, text: (row) => significant(row.weight, 3) },
        ],
        rows: () => originRows(currentRun(), algorithm),
    });
}

function originRows(run, algorithm) {
    return shownMethods(run).flatMap((method) => {
        const { weights, sessions } = weightsOf(run, algorithm, method);
        return sessions.flatMap((session) =>
            [...weights]
                .filter(([, own]) => own.has(session))
                .sort(([a], [b]) => partOrder(a) - partOrder(b))
                .map(([part, own]) => ({ method, session, part, weight: own.get(session) })),
        );
    });
}

function originInWords(run, algorithm) {
    const rows = originRows(run, algorithm);
    const parts = shownMethods(run).map((method) => {
        const own = rows.filter((row) => row.method === method);
        const last = own.at(-1)?.session;
        const heaviest = own
            .filter((row) => row.session === last)
            .sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight))[0];
        return heaviest
            ? `${method} began session ${last} mostly with ${run.origins.words[heaviest.part] ?? heaviest.part} (${significant(heaviest.weight, 2)})`
            : null;
    });
    return `Where each start came from under ${algorithm}: ${parts.filter(Boolean).join("; ")}.`;
}

function originChart(run, algorithm, methods, parts, { places, margin }) {
    const colours = palette();
    const layout = { margin, hovermode: "closest", annotations: [] };
    const traces = methods.map((method, n) => {
        const place = places[n];
        const { weights, sessions } = weightsOf(run, algorithm, method);
        const cells = parts.map((part) =>
            sessions.map((session) => weights.get(part)?.get(session) ?? null),
        );
        const strongest = cells
            .flat()
            .reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 1e-9);
        // By its square root, a weight of a hundredth can still be seen beside one of one.
        const shades = cells.map((row) =>
            row.map((value) =>
                value === null ? null : Math.sign(value) * Math.sqrt(Math.abs(value) / strongest),
            ),
        );
        const every = Math.ceil(parts.length / 40);
        const named = parts.map((part, at) => [at, part]).filter(([at]) => at % every === 0);
        const roomy = place.width / Math.max(1, sessions.length) > 34 && parts.length <= 40;
        layout[`xaxis${place.suffix}`] = axis({
            domain: place.x,
            anchor: `y${place.suffix}`,
            showgrid: false,
            tickformat: "d",
            range: [(sessions[0] ?? 1) - 0.5, (sessions.at(-1) ?? 1) + 0.5],
            ...(sessions.length <= 20 ? { tickvals: sessions } : {}),
            title: { text: "session", standoff: 4, font: { size: 12 } },
        });
        layout[`yaxis${place.suffix}`] = axis({
            domain: place.y,
            anchor: `x${place.suffix}`,
            showgrid: false,
            range: [parts.length - 0.5, -0.5],
            showticklabels: place.column === 0,
            tickvals: named.map(([at]) => at),
            ticktext: named.map(([, part]) => plain(partName(part), 14)),
            tickfont: { size: 11.5 },
        });
        layout.annotations.push(panelTitle(place, plain(method)));
        return {
            type: "heatmap",
            x: sessions,
            y: parts.map((_, at) => at),
            z: shades,
            zmin: -1,
            zmax: 1,
            showscale: false,
            colorscale: [
                [0, colours.bad[1]],
                [0.4, colours.bad[0]],
                [0.5, colours.ground],
                [0.6, colours.good[0]],
                [1, colours.good[1]],
            ],
            xaxis: `x${place.suffix}`,
            yaxis: `y${place.suffix}`,
            xgap: 1,
            ygap: 1,
            hoverongaps: false,
            hovertemplate: "%{customdata}<extra></extra>",
            customdata: cells.map((row, at) =>
                row.map((value, to) =>
                    value === null
                        ? ""
                        : `session ${sessions[to]} began with ${significant(value, 3)} of<br>${plain(run.origins.words[parts[at]] ?? parts[at])}`,
                ),
            ),
            ...(roomy
                ? {
                      text: cells.map((row) =>
                          row.map((value) => (value === null ? "" : weightText(value))),
                      ),
                      texttemplate: "%{text}",
                  }
                : {}),
            textfont: { size: 10.5 },
        };
    });
    return { traces, layout };
}

function weightText(value) {
    return Math.abs(value) < 0.005 ? "" : signed(Number(value.toFixed(2)).toString());
}

// --- the map ---

sections.map = (run) => {
    if (!run.maps.length) {
        return [
            nothing(
                "There is no map: it is drawn from the distances between sessions' signatures, which only some starts measure " +
                    "(warm_start does), and it takes at least three sessions that were compared.",
            ),
        ];
    }
    const several = distinct(run.maps.map((own) => `${own.algorithm} ${own.method}`)).length > 1;
    const options = run.maps.map((own, n) => [
        n,
        `${several ? `${own.algorithm}, ${own.method}, ` : ""}seed ${own.seed}`,
    ]);
    return [
        said(
            "Sessions whose signatures are close lie close together. A start that weighs the past by its signatures draws on the " +
                "sessions near its own.",
        ),
        figure("map", {
            title: "Sessions by signature",
            tools:
                options.length > 1
                    ? [picker("map", "Measured under", options, 0, () => fill("map"))]
                    : [],
            legendless: true,
            legend: labelLegend(run, mapOf(run)),
            height: (width) => mapHeight(mapOf(currentRun()), width),
            spec: (width) => mapChart(currentRun(), mapOf(currentRun()), width),
            summary: () => mapInWords(mapOf(currentRun())),
            note: () => stressInWords(mapOf(currentRun())),
            columns: () => [
                { title: "session", head: true, text: (row) => String(row.session) },
                { title: "across", number: true, text: (row) => significant(row.x, 3) },
                { title: "up", number: true, text: (row) => significant(row.y, 3) },
            ],
            rows: () => {
                const own = mapOf(currentRun());
                return own.sessions.map((session, n) => ({ session, x: own.x[n], y: own.y[n] }));
            },
        }),
    ];
};

const mapOf = (run) => run.maps[pick("map", 0)] ?? run.maps[0];

function stressInWords(own) {
    const off = own.stress === null ? "an unknown share" : `${significant(100 * own.stress, 2)} %`;
    return (
        `Measured by ${own.method} under ${own.algorithm}, seed ${own.seed}. A plane cannot show all distances: here they are off by ${off} ` +
        `(stress ${significant(own.stress, 2)}).`
    );
}

function mapInWords(own) {
    let [nearest, pair] = [Infinity, null];
    own.sessions.forEach((a, i) =>
        own.sessions.forEach((b, j) => {
            const apart = Math.hypot(own.x[i] - own.x[j], own.y[i] - own.y[j]);
            if (i < j && apart < nearest) [nearest, pair] = [apart, [a, b]];
        }),
    );
    return `Map of ${own.sessions.length} sessions by signature. The closest are sessions ${pair?.join(" and ")}. ${stressInWords(own)}`;
}

const GROUP_MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "star"];

// Sessions with the same labels have the same mark, as long as there are few such groups.
function labelGroups(run, own) {
    const rows = run.presence.find((facts) => facts.seed === own.seed)?.sessions ?? [];
    const labels = new Map(rows.map((row) => [row.session, row.labels]));
    const groups = distinct(own.sessions.map((session) => labels.get(session) ?? ""));
    const few = groups.length > 1 && groups.length <= GROUP_MARKS.length;
    return {
        groups: few ? groups : [],
        mark: (session) =>
            few ? GROUP_MARKS[groups.indexOf(labels.get(session) ?? "")] : "circle",
    };
}

function labelLegend(run, own) {
    const { groups } = labelGroups(run, own);
    if (!groups.length) return null;
    return h(
        "ul",
        { class: "legend" },
        groups.map((labels, n) =>
            h(
                "li",
                {},
                swatch({
                    light: PALETTES.light.joined,
                    dark: PALETTES.dark.joined,
                    dash: "none",
                    marker: GROUP_MARKS[n],
                }),
                `labels ${labels}`,
            ),
        ),
    );
}

const extent = (values) => Math.max(...values) - Math.min(...values);
const MAP_EDGE = { x: 190, y: 100 };

// As high as the map needs at this width, within limits.
function mapHeight(own, width) {
    const shape = extent(own.x) ? extent(own.y) / extent(own.x) : 1;
    return Math.round(Math.min(400, Math.max(150, (width - MAP_EDGE.x) * shape + MAP_EDGE.y)));
}

function mapChart(run, own, width) {
    const colours = palette();
    const height = mapHeight(own, width);
    const facts = new Map(
        (run.presence.find((each) => each.seed === own.seed)?.sessions ?? []).map((row) => [
            row.session,
            row,
        ]),
    );
    const { mark } = labelGroups(run, own);
    // One scale for both directions, so that distances can be compared.
    const unit = Math.max(
        extent(own.x) / (width - MAP_EDGE.x),
        extent(own.y) / (height - MAP_EDGE.y),
        1e-12,
    );
    const reach = (values, length) => {
        const middle = (Math.max(...values) + Math.min(...values)) / 2;
        return [middle - (unit * length) / 2, middle + (unit * length) / 2];
    };
    // Sessions that lie on each other share a label.
    let clusters = [];
    own.sessions.forEach((session, n) => {
        const near = (at) => Math.hypot(own.x[at] - own.x[n], own.y[at] - own.y[n]) < 28 * unit;
        const joined = clusters.filter((cluster) => cluster.some(near));
        clusters = [
            ...clusters.filter((cluster) => !joined.includes(cluster)),
            [...joined.flat(), n],
        ];
    });
    return {
        traces: [
            {
                type: "scatter",
                mode: "markers",
                x: own.x,
                y: own.y,
                cliponaxis: false,
                hovertemplate: "%{customdata}<extra></extra>",
                customdata: own.sessions.map((session) => {
                    const row = facts.get(session);
                    return `session ${session}${row ? `<br>${counted(row.devices, "device")}<br>labels: ${plain(row.labels, 60)}` : ""}`;
                }),
                marker: {
                    size: 12,
                    symbol: own.sessions.map(mark),
                    color: colours.joined,
                    line: { width: 1.2, color: colours.ground },
                },
            },
        ],
        layout: {
            hovermode: "closest",
            margin: { l: 0, r: 0, t: 0, b: 0, pad: 0 },
            xaxis: axis({ showticklabels: false, showgrid: false, range: reach(own.x, width) }),
            yaxis: axis({ showticklabels: false, showgrid: false, range: reach(own.y, height) }),
            shapes: [
                {
                    type: "rect",
                    xref: "paper",
                    yref: "paper",
                    x0: 0,
                    x1: 1,
                    y0: 0,
                    y1: 1,
                    line: { width: 1, color: colours.line },
                },
            ],
            annotations: clusters.map((cluster) => ({
                x: mean(cluster.map((n) => own.x[n])),
                y: Math.max(...cluster.map((n) => own.y[n])),
                showarrow: false,
                yanchor: "bottom",
                yshift: 8,
                text: clusterName(cluster.map((n) => own.sessions[n]).sort((a, b) => a - b)),
                font: { size: 12.5, color: colours.ink },
            })),
        },
    };
}

function clusterName(sessions) {
    const names = sessions.length > 8 ? [...sessions.slice(0, 7), "…"] : sessions;
    return names.join(", ");
}
