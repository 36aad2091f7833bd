// How the starts compare: scores with intervals, paired tests, time to accuracy, gains.

sections.scores = (run) => {
    const own = run.scores;
    if (!own.scores.length) return [nothing(run.nothing_yet)];
    const sessions = distinct(own.scores.map((row) => row.session)).filter(
        (session) => session !== null,
    );
    const places = [[null, "all transitions"], ...sessions.map((s) => [s, `session ${s}`])];
    const nodes = [
        said(
            "Each start's mean with its 95 % interval over seeds, and each seed as a small ring. Starts are judged by the first " +
                "rounds; the last panel tests the final model on all test samples, not only on those of the session.",
        ),
        h(
            "div",
            { class: "tools" },
            picker("scores", "Transitions", places, null, () => fill("scores")),
        ),
    ];
    const session = pick("scores", null);
    for (const algorithm of run.algorithms) {
        const rows = own.scores.filter(
            (row) => row.algorithm === algorithm && row.session === session,
        );
        if (!rows.length) continue;
        if (run.algorithms.length > 1) nodes.push(h("h3", {}, algorithm));
        nodes.push(
            scoreFigure(run, algorithm),
            pairTable(run, algorithm),
            speedTables(run, algorithm, session),
        );
    }
    return nodes.flat().filter(Boolean);
};

const scoreRows = (run, algorithm) =>
    run.scores.scores.filter(
        (row) => row.algorithm === algorithm && row.session === pick("scores", null),
    );

function scoreFigure(run, algorithm) {
    const kinds = () => distinct(scoreRows(currentRun(), algorithm).map((row) => row.what));
    const columns = (width) => (width < 560 ? 1 : kinds().length);
    const grid = (width) =>
        panels(kinds().length, columns(width), width, {
            rowHeight: 24 + 34 * Math.max(1, shownMethods(currentRun()).length),
            gapX: 26,
            gapY: 50,
            left: 104,
            top: 28,
            bottom: 26,
        });
    return figure(`scores ${algorithm}`, {
        title: run.judge.title,
        height: (width) => grid(width).height,
        spec: (width) => scoreChart(currentRun(), algorithm, kinds(), grid(width)),
        summary: () => {
            const now = currentRun();
            const parts = scoreRows(now, algorithm)
                .filter((row) => !chosen.hiddenMethods.has(row.method))
                .map((row) => `${row.what}, ${row.method}: ${withUnit(now, row.mean)}`);
            return `${capital(now.judge.short)} by start under ${algorithm}. ${parts.join("; ")}.`;
        },
        note: () =>
            chosen.hiddenSeeds.size
                ? "Intervals rest on all seeds, and are shown when all seeds are."
                : shownSeeds(currentRun()).length > 1
                  ? "Marker: mean; line: interval; rings: seeds."
                  : "One seed: no interval.",
        columns: () => [
            { title: "score", head: true, text: (row) => row.what },
            { title: "start", text: (row) => row.method },
            {
                title: currentRun().judge.title,
                number: true,
                text: (row) => score(currentRun(), row.mean),
            },
            {
                title: "interval",
                number: true,
                text: (row) => range(currentRun(), row.low, row.high),
            },
            ...(currentRun().scores.seeds[algorithm] ?? []).map((seed, n) => ({
                title: `seed ${seed}`,
                number: true,
                text: (row) => score(currentRun(), row.values[n] ?? null),
            })),
        ],
        rows: () => scoreRows(currentRun(), algorithm),
    });
}

function scoreChart(run, algorithm, kinds, { places, margin }) {
    const methods = shownMethods(run);
    const seeds = run.scores.seeds[algorithm] ?? [];
    const complete = seeds.every((seed) => !chosen.hiddenSeeds.has(seed));
    const traces = [];
    const layout = { margin, hovermode: "closest", annotations: [] };
    kinds.forEach((what, n) => {
        const place = places[n];
        methods.forEach((method, level) => {
            const row = scoreRows(run, algorithm).find(
                (own) => own.what === what && own.method === method,
            );
            if (!row) return;
            const values = row.values.filter((_, at) => !chosen.hiddenSeeds.has(seeds[at]));
            const names = seeds.filter((seed) => !chosen.hiddenSeeds.has(seed));
            const middle = complete ? row.mean : mean(values);
            if (middle === null) return;
            const colour = colourOf(run.looks[method]);
            const axes = { xaxis: `x${place.suffix}`, yaxis: `y${place.suffix}`, type: "scatter" };
            if (names.length > 1) {
                traces.push({
                    ...axes,
                    mode: "markers",
                    x: values,
                    y: values.map(() => level),
                    hovertemplate: "%{text}<extra></extra>",
                    text: names.map(
                        (seed, at) =>
                            `${plain(method)}, seed ${seed}: ${withUnit(run, values[at])}`,
                    ),
                    marker: {
                        symbol: "circle-open",
                        size: 7,
                        color: colour,
                        opacity: 0.65,
                        line: { width: 1 },
                    },
                });
            }
            if (complete && row.low !== null) {
                traces.push({
                    ...axes,
                    mode: "lines",
                    x: [row.low, row.high],
                    y: [level, level],
                    hoverinfo: "skip",
                    line: { color: colour, width: 2 },
                });
            }
            traces.push({
                ...axes,
                mode: "markers+text",
                x: [middle],
                y: [level],
                text: [score(run, middle)],
                textposition: "top center",
                textfont: { size: 11.5, color: palette().ink },
                customdata: [
                    `${plain(method)}: ${withUnit(run, middle)}${complete && row.low !== null ? `, interval ${range(run, row.low, row.high)}` : ""}`,
                ],
                hovertemplate: "%{customdata}<extra></extra>",
                marker: { symbol: run.looks[method].marker, size: 10, color: colour },
                cliponaxis: false,
            });
        });
        layout[`xaxis${place.suffix}`] = axis({
            domain: place.x,
            anchor: `y${place.suffix}`,
            nticks: 5,
            showline: true,
        });
        layout[`yaxis${place.suffix}`] = axis({
            domain: place.y,
            anchor: `x${place.suffix}`,
            range: [methods.length - 0.45, -0.75],
            showgrid: false,
            fixedrange: true,
            tickvals: methods.map((_, level) => level),
            ticktext: methods.map((method) => plain(method, 16)),
            showticklabels: place.column === 0,
            tickfont: { color: palette().ink, size: 12.5 },
        });
        layout.annotations.push(panelTitle(place, what));
    });
    return { traces, layout };
}

function pairTable(run, algorithm) {
    const pairs = run.scores.pairs.filter((pair) => pair.algorithm === algorithm);
    if (!pairs.length) return [];
    const kinds = distinct(pairs.map((pair) => pair.what));
    const control = `pairs ${algorithm}`;
    const holder = h("div", {});
    const refill = () => {
        const what = pick(control, kinds[0]);
        holder.replaceChildren(
            table(`pairs ${algorithm}`, {
                caption: `Paired by seed: ${run.judge.short}, ${what}, mean over all transitions.`,
                columns: [
                    { title: "better", head: true, text: (pair) => methodName(run, pair.better) },
                    { title: "than", text: (pair) => methodName(run, pair.other) },
                    {
                        title: `by${run.judge.points ? ` (${run.judge.points.trim()})` : ""}`,
                        number: true,
                        text: (pair) => score(run, pair.difference),
                    },
                    {
                        title: "interval",
                        number: true,
                        text: (pair) => range(run, pair.low, pair.high),
                    },
                    {
                        title: "ahead under",
                        number: true,
                        text: (pair) => `${pair.wins} of ${counted(pair.seeds, "seed")}`,
                    },
                    { title: "p", number: true, text: (pair) => significant(pair.p, 2) },
                    { title: "in words", text: (pair) => pair.words },
                ],
                rows: pairs.filter((pair) => pair.what === what),
                label: `Paired tests under ${algorithm}`,
            }),
        );
    };
    const select = picker(
        control,
        "Score",
        kinds.map((kind) => [kind, kind]),
        kinds[0],
        refill,
    );
    refill();
    return [
        h("h3", {}, "Is it chance?"),
        h(
            "p",
            { class: "said" },
            "p: exact paired permutation test over seeds, two-sided. ",
            run.scores.tested,
        ),
        kinds.length > 1 ? h("div", { class: "tools" }, select) : null,
        holder,
    ];
}

function speedTables(run, algorithm, session) {
    const own = run.scores;
    const others = run.methods.filter((method) => method !== own.reference);
    const nodes = [h("h3", {}, "How soon, and what is gained")];
    for (const target of own.targets) {
        const rows = own.speeds.filter(
            (row) =>
                row.algorithm === algorithm && row.session === session && row.target === target,
        );
        if (!rows.length) continue;
        const most = Math.max(...rows.map((row) => row.charged ?? 0));
        nodes.push(
            table(`speed ${algorithm} ${target}`, {
                caption: `Rounds to ${whose(target, own.reference)} (on average ${withUnit(run, rows[0].level)}); ${DASH} means that some session did not get there.`,
                columns: [
                    { title: "start", head: true, text: (row) => methodName(run, row.method) },
                    { title: "rounds", number: true, text: (row) => significant(row.rounds, 3) },
                    { title: "with probe and survey", text: (row) => barCell(row.charged, most) },
                    {
                        title: "reached under",
                        number: true,
                        text: (row) => `${row.reached} of ${counted(row.seeds, "seed")}`,
                    },
                    {
                        title: `relative to ${own.reference}`,
                        number: true,
                        text: (row) => row.speed_up,
                    },
                ],
                rows,
                label: `Rounds to ${target} under ${algorithm}`,
            }),
        );
    }
    const gains = own.gains.filter((row) => row.algorithm === algorithm && row.session === session);
    if (gains.length && others.length) {
        nodes.push(
            table(`gains ${algorithm}`, {
                caption:
                    `Accumulated ${run.judge.short} gain of ${own.reference} over the others: differences summed over a session's rounds` +
                    `${run.judge.percent ? ", in points" : ""}; below zero the other is better.`,
                columns: [
                    { title: "over", head: true, text: (row) => methodName(run, row.method) },
                    { title: "gain", number: true, text: (row) => significant(row.mean, 4) },
                    {
                        title: "interval",
                        number: true,
                        text: (row) =>
                            row.low === null
                                ? DASH
                                : `${significant(row.low, 4)} to ${significant(row.high, 4)}`,
                    },
                    {
                        title: "a round",
                        number: true,
                        text: (row) => significant(row.per_round, 3),
                    },
                    {
                        title: "ahead under",
                        number: true,
                        text: (row) => `${row.wins} of ${counted(row.seeds, "seed")}`,
                    },
                    { title: "p", number: true, text: (row) => significant(row.p, 2) },
                ],
                rows: gains,
                label: `Gains under ${algorithm}`,
            }),
        );
    }
    return nodes;
}

// A target such as "95 % of peak", with whose peak that is.
const whose = (target, reference) => target.replace(/ of (peak|final)$/, ` of ${reference}'s $1`);

function barCell(value, most) {
    if (value === null) return DASH;
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${most ? (5.5 * value) / most : 0}rem`;
    return h("span", {}, bar, significant(value, 3));
}
