// What it cost: seconds, joules and bytes, split into training, probe and survey.

const PARTS = ["training", "probe", "survey"];
const PART_WORDS = {
    training: "training",
    probe: "probe (rounds before the session)",
    survey: "survey (questions to devices)",
};
const RESOURCES = [
    { name: "seconds", unit: "s", of: (amounts) => amounts[0] },
    { name: "joules, all devices", unit: "J", of: (amounts) => amounts[1] },
    { name: "bytes, down and up", unit: "B", of: (amounts) => amounts[2] + amounts[3] },
];

sections.costs = (run) => {
    const own = run.costs;
    if (!own.sessions.length)
        return [nothing(`What it cost is not known: ${own.reason || "no round is finished yet"}.`)];
    const sessions = distinct(own.sessions.map((row) => row.session)).sort((a, b) => a - b);
    const choice = own.sessions.some((row) => row.transition !== null);
    const options = [
        [null, choice ? "mean of sessions with a choice" : "mean of all sessions"],
        ...sessions.map((session) => [session, sessionName(run, session)]),
    ];
    const nodes = [
        said(
            "What a session takes on the air and on devices, by the records and the channel in [wireless]: time until the " +
                "slowest device is done, energy and bytes of all devices. The probe and the survey are charged to the starts that need them.",
        ),
        h(
            "div",
            { class: "tools" },
            picker("costs", "Session", options, null, () => fill("costs")),
        ),
    ];
    for (const algorithm of run.algorithms) {
        nodes.push(costFigure(run, algorithm), ...targetTables(run, algorithm));
    }
    return nodes;
};

// Mean amounts of a part over the chosen sessions and the seeds that are shown.
function costOf(run, algorithm, method, part, resource) {
    const session = pick("costs", null);
    const seeded = run.costs.sessions.filter(
        (row) =>
            row.algorithm === algorithm &&
            row.method === method &&
            !chosen.hiddenSeeds.has(row.seed),
    );
    const decided = seeded.filter((row) => row.transition !== null);
    const usual = run.costs.sessions.some((row) => row.transition !== null) ? decided : seeded;
    const own = session === null ? usual : seeded.filter((row) => row.session === session);
    return mean(own.map((row) => resource.of(row[part]))) ?? 0;
}

function costFigure(run, algorithm) {
    const columns = (width) => (width < 560 ? 1 : 3);
    const grid = (width) =>
        panels(3, columns(width), width, {
            rowHeight: 16 + 26 * Math.max(1, shownMethods(currentRun()).length),
            gapX: 40,
            gapY: 50,
            left: 104,
            right: 54,
            top: 28,
            bottom: 26,
        });
    const total = (method, resource) =>
        sum(PARTS.map((part) => costOf(currentRun(), algorithm, method, part, resource)));
    return figure(`costs ${algorithm}`, {
        title: run.algorithms.length > 1 ? `${algorithm}: a session` : "A session",
        height: (width) => grid(width).height,
        spec: (width) => costChart(currentRun(), algorithm, grid(width)),
        legend: partLegend(run, algorithm),
        summary: () => {
            const parts = shownMethods(currentRun()).map(
                (method) =>
                    `${method} ${RESOURCES.map((resource) => amount(total(method, resource), resource.unit)).join(", ")}`,
            );
            return `Seconds, joules and bytes of a session under ${algorithm}: ${parts.join("; ")}.`;
        },
        columns: () => [
            { title: "start", head: true, text: (row) => row.method },
            { title: "part", text: (row) => row.part },
            ...RESOURCES.map((resource) => ({
                title: resource.name,
                number: true,
                text: (row) =>
                    amount(
                        costOf(currentRun(), algorithm, row.method, row.part, resource),
                        resource.unit,
                    ),
            })),
        ],
        rows: () =>
            shownMethods(currentRun()).flatMap((method) => PARTS.map((part) => ({ method, part }))),
    });
}

const PATTERNS = { training: "", probe: "/", survey: "." };

function usedParts(run, algorithm) {
    return PARTS.filter(
        (part) =>
            part === "training" ||
            run.costs.sessions.some(
                (row) => row.algorithm === algorithm && row[part].some((value) => value),
            ),
    );
}

function partLegend(run, algorithm) {
    const parts = usedParts(run, algorithm);
    if (parts.length < 2) return null;
    const fills = {
        training: "currentColor",
        probe: "repeating-linear-gradient(-45deg, currentColor 0 2px, transparent 2px 5px)",
        survey: "radial-gradient(currentColor 1.1px, transparent 1.4px) 0 0 / 4px 4px",
    };
    return h(
        "ul",
        { class: "legend" },
        parts.map((part) => {
            const block = h("span", { class: "block", "aria-hidden": "true" });
            block.style.background = fills[part];
            return h("li", {}, block, PART_WORDS[part]);
        }),
    );
}

function costChart(run, algorithm, { places, margin }) {
    const methods = shownMethods(run);
    const layout = {
        margin,
        barmode: "stack",
        bargap: 0.35,
        hovermode: "closest",
        annotations: [],
    };
    const traces = [];
    RESOURCES.forEach((resource, n) => {
        const place = places[n];
        const totals = methods.map((method) =>
            sum(PARTS.map((part) => costOf(run, algorithm, method, part, resource))),
        );
        const step = thousands(Math.max(...totals, 0), resource.unit);
        const scale = 1000 ** step;
        for (const part of usedParts(run, algorithm)) {
            const values = methods.map((method) => costOf(run, algorithm, method, part, resource));
            traces.push({
                type: "bar",
                orientation: "h",
                x: values.map((value) => value / scale),
                y: methods.map((_, level) => level),
                xaxis: `x${place.suffix}`,
                yaxis: `y${place.suffix}`,
                hovertemplate: "%{customdata}<extra></extra>",
                customdata: methods.map(
                    (method, at) =>
                        `${plain(method)}, ${part}: ${amount(values[at], resource.unit)}`,
                ),
                marker: {
                    color: methods.map((method) => colourOf(run.looks[method])),
                    line: {
                        width: part === "training" ? 0 : 1,
                        color: methods.map((method) => colourOf(run.looks[method])),
                    },
                    pattern: {
                        shape: PATTERNS[part],
                        size: 5,
                        solidity: 0.35,
                        fillmode: "replace",
                    },
                },
            });
        }
        layout[`xaxis${place.suffix}`] = axis({
            domain: place.x,
            anchor: `y${place.suffix}`,
            rangemode: "tozero",
            nticks: 4,
            fixedrange: true,
        });
        layout[`yaxis${place.suffix}`] = axis({
            domain: place.y,
            anchor: `x${place.suffix}`,
            range: [methods.length - 0.5, -0.5],
            showgrid: false,
            fixedrange: true,
            tickvals: methods.map((_, level) => level),
            ticktext: methods.map((method) => plain(method, 16)),
            showticklabels: place.column === 0,
            tickfont: { color: palette().ink, size: 12.5 },
        });
        layout.annotations.push(
            panelTitle(place, `${resource.name} (${PREFIXES[step]}${resource.unit})`),
        );
        methods.forEach((_, level) =>
            layout.annotations.push({
                text: amount(totals[level], resource.unit),
                x: totals[level] / scale,
                y: level,
                xref: `x${place.suffix}`,
                yref: `y${place.suffix}`,
                xanchor: "left",
                xshift: 4,
                showarrow: false,
                font: { size: 11.5, color: palette().ink },
            }),
        );
    });
    return { traces, layout };
}

function targetTables(run, algorithm) {
    const rows = run.costs.targets.filter((row) => row.algorithm === algorithm);
    return distinct(rows.map((row) => row.target)).map((target) => {
        const own = rows.filter((row) => row.target === target);
        const all = (row, at) =>
            row.reached ? sum([...PARTS, "pilot"].map((part) => row[part][at] ?? 0)) : null;
        return table(`target ${algorithm} ${target}`, {
            caption:
                `To ${whose(target, run.methods.includes("warm_start") ? "warm_start" : "the best start")}: ` +
                "means of the transitions and seeds that got there, with probe, survey and a share of the pilot sessions, where a start uses them.",
            columns: [
                { title: "start", head: true, text: (row) => methodName(run, row.method) },
                {
                    title: "got there",
                    number: true,
                    text: (row) => `${row.reached} of ${row.attempts}`,
                },
                { title: "rounds", number: true, text: (row) => significant(row.rounds, 3) },
                { title: "time", number: true, text: (row) => amount(all(row, 0), "s") },
                { title: "energy", number: true, text: (row) => amount(all(row, 1), "J") },
                {
                    title: "bytes",
                    number: true,
                    text: (row) => amount(row.reached ? all(row, 2) + all(row, 3) : null, "B"),
                },
            ],
            rows: own,
            label: `Cost to ${target} under ${algorithm}`,
        });
    });
}
