// The measure over all rounds, and the first rounds after each transition enlarged.
// No line ever joins two sessions: each has test samples of its own.

sections.accuracy = (run) => {
    if (!run.algorithms.length) return [nothing("No round is finished yet.")];
    const measure = run.judge.short;
    return [
        said(
            `${capital(measure)} after every round, on the test samples of the session at hand` +
                `${run.judge.higher ? "" : " (less is better)"}; lines begin with what the start itself achieves.`,
        ),
        ...run.algorithms.map((algorithm) => overRounds(run, algorithm)),
    ];
};

function overRounds(run, algorithm) {
    const name = `accuracy ${algorithm}`;
    const spans = spansOf(run, algorithm);
    const options = [
        [null, "all sessions"],
        ...spans.map((s) => [s.session, sessionName(run, s.session)]),
    ];
    const chart = {
        title: run.algorithms.length > 1 ? `${algorithm}: ${run.judge.title}` : run.judge.title,
        tools:
            spans.length > 1
                ? [
                      picker(name, "Show", options, null, () => {
                          const own = charts.get(name);
                          own.zoom += 1;
                          own.reset.hidden = true;
                          later(own);
                      }),
                  ]
                : [],
        unzoomed: () => {
            chosen.picks.set(name, null);
            fill("accuracy");
        },
        height: (width) => (width < 560 ? 280 : 360),
        spec: (width) => roundsChart(currentRun(), algorithm, width, pick(name, null)),
        summary: () => roundsInWords(currentRun(), algorithm),
        note: () => `${seedsNote(currentRun())} ${sameNote(currentRun(), algorithm)}`,
        columns: () => roundColumns(currentRun()),
        rows: () => roundRows(currentRun(), algorithm),
    };
    return figure(name, chart);
}

// The lines of some sessions. `placed` says where a round of a session lies: its x, and its panel.
function lines(run, algorithm, placed) {
    const traces = [];
    const groups = new Map();
    for (const stretch of stretchesOf(run, algorithm)) {
        const place = placed(stretch.session);
        const methods = stretch.methods.filter((method) => !chosen.hiddenMethods.has(method));
        if (!place || !methods.length) continue;
        const shared = stretch.methods.length > 1;
        const key = JSON.stringify([place.suffix, shared ? stretch.methods : methods]);
        if (!groups.has(key))
            groups.set(key, { shared, methods: stretch.methods, suffix: place.suffix, parts: [] });
        groups.get(key).parts.push({ stretch, place });
    }
    // Lines that several methods share lie below those of a single one.
    const ordered = [...groups.values()].sort((a, b) => b.shared - a.shared);
    for (const group of ordered) {
        const seeds = shownSeeds(run);
        if (chosen.singleSeeds && seeds.length > 1) {
            for (const seed of seeds)
                traces.push(
                    lineTrace(
                        run,
                        group,
                        (c) => c.filter((own) => own.seed === seed),
                        `, seed ${seed}`,
                    ),
                );
        } else {
            if (seeds.length > 1) traces.unshift(bandTrace(run, group));
            traces.push(lineTrace(run, group, shownCurves, ""));
        }
    }
    return traces;
}

function groupLook(run, group) {
    return group.shared ? page.together : run.looks[group.methods[0]];
}

function groupName(run, group) {
    if (!group.shared) return group.methods[0];
    return group.methods.length === run.methods.length
        ? "all starts (no choice yet)"
        : `${listed(group.methods)} (the same so far)`;
}

function lineTrace(run, group, choose, suffix) {
    const look = groupLook(run, group);
    const [x, y, sizes, texts] = [[], [], [], []];
    for (const { stretch, place } of group.parts) {
        const points = pointsOf(choose(stretch.curves));
        const own = points.filter(([round]) => round <= place.most);
        for (const [round, value, low, high] of own) {
            x.push(place.x(round));
            y.push(value);
            sizes.push(place.marked || round === 0 || own.length < 3 ? (place.marked ? 5 : 6) : 0);
            const spread = low === high ? "" : ` (${range(run, low, high)})`;
            texts.push(
                `${plain(groupName(run, group), 90)}${suffix}: ${withUnit(run, value)}${spread}`,
            );
        }
        x.push(null);
        y.push(null);
        sizes.push(0);
        texts.push("");
    }
    const colour = colourOf(look);
    return {
        type: "scatter",
        mode: "lines+markers",
        x,
        y,
        text: texts,
        hovertemplate: "%{text}<extra></extra>",
        name: plain(groupName(run, group)),
        connectgaps: false,
        line: { color: colour, dash: look.dash, width: suffix ? 1.1 : 1.9 },
        opacity: suffix ? 0.75 : 1,
        marker: { color: colour, symbol: look.marker, size: sizes, opacity: 1, line: { width: 0 } },
        xaxis: `x${group.suffix}`,
        yaxis: `y${group.suffix}`,
    };
}

function bandTrace(run, group) {
    const [x, y] = [[], []];
    for (const { stretch, place } of group.parts) {
        const points = pointsOf(shownCurves(stretch.curves)).filter(
            ([round]) => round <= place.most,
        );
        const ends = [...points].reverse();
        x.push(
            ...points.map(([round]) => place.x(round)),
            ...ends.map(([round]) => place.x(round)),
            null,
        );
        y.push(...points.map((point) => point[3]), ...ends.map((point) => point[2]), null);
    }
    return {
        type: "scatter",
        mode: "lines",
        x,
        y,
        fill: "toself",
        hoverinfo: "skip",
        line: { width: 0 },
        fillcolor: faded(
            colourOf(groupLook(run, group)),
            theme === "dark" && !printing ? 0.2 : 0.13,
        ),
        xaxis: `x${group.suffix}`,
        yaxis: `y${group.suffix}`,
    };
}

function roundsChart(run, algorithm, width, only) {
    const spans = spansOf(run, algorithm);
    const bySession = new Map(spans.map((span) => [span.session, span]));
    // A start lies on the border of its session, before round 1.
    const placed = (session) => {
        const { before } = bySession.get(session);
        return {
            suffix: "",
            most: Infinity,
            x: (round) => (round ? before + round : before + 0.5),
        };
    };
    const last = spans.at(-1);
    const end = last ? last.before + last.rounds : 1;
    const view =
        only === null || !bySession.has(only)
            ? [0.5, end + 0.5]
            : // From its own start to just before that of the next session.
              [
                  bySession.get(only).before + 0.3,
                  bySession.get(only).before + bySession.get(only).rounds + 0.3,
              ];
    const places = {
        type: "scatter",
        mode: "markers",
        hovertemplate: "%{text}<extra></extra>",
        marker: { opacity: 0, size: 1 },
        x: [],
        y: [],
        text: [],
    };
    const traces = lines(run, algorithm, placed);
    const level = traces.flatMap((trace) => trace.y).find((value) => value !== null) ?? 0;
    for (const span of spans) {
        for (let t = 1; t <= span.rounds; t += 1) {
            places.x.push(span.before + t);
            places.y.push(level);
            places.text.push(`${sessionName(run, span.session)}, round ${t}`);
        }
    }
    return {
        traces: [places, ...traces],
        layout: {
            hovermode: "x unified",
            margin: { l: 40, r: 10, t: 34, b: 38, pad: 0 },
            xaxis: axis({
                range: view,
                showgrid: false,
                showline: true,
                ticks: "outside",
                ticklen: 4,
                title: { text: "round", standoff: 6, font: { size: 12.5 } },
                unifiedhovertitle: { text: "round %{x} of the run" },
                hoverformat: "d",
                tickformat: ",d",
            }),
            yaxis: axis({ nticks: 7 }),
            shapes: sessionShapes(run, algorithm, spans),
            annotations: sessionLabels(run, algorithm, spans, width, view),
        },
    };
}

function sessionShapes(run, algorithm, spans) {
    const colours = palette();
    const undecided = new Set(undecidedOf(run, algorithm));
    const shades = spans
        .filter((span) => undecided.has(span.session))
        .map((span) => ({
            type: "rect",
            xref: "x",
            yref: "paper",
            y0: 0,
            y1: 1,
            layer: "below",
            line: { width: 0 },
            fillcolor: colours.shade,
            x0: span.before + 0.5,
            x1: span.before + span.rounds + 0.5,
        }));
    const borders = spans.slice(1).map((span) => ({
        type: "line",
        xref: "x",
        yref: "paper",
        y0: 0,
        y1: 1.02,
        layer: "below",
        x0: span.before + 0.5,
        x1: span.before + 0.5,
        line: { width: 1, color: colours.strong },
    }));
    return [...shades, ...borders];
}

function sessionLabels(run, algorithm, spans, width, view) {
    const shown = spans.filter(
        (span) => span.before + span.rounds > view[0] && span.before + 0.5 < view[1],
    );
    const perRound = (width - 50) / (view[1] - view[0]);
    const narrowest = Math.min(...shown.map((span) => span.rounds * perRound));
    const every = Math.max(1, Math.ceil(22 / Math.max(1, narrowest)));
    const labels = shown
        .filter((_, n) => n % every === 0)
        .map((span) => ({
            text: span.rounds * perRound > 74 ? `session ${span.session}` : String(span.session),
            x: span.before + (span.rounds + 1) / 2,
            xref: "x",
            y: 1,
            yref: "paper",
            yanchor: "bottom",
            showarrow: false,
            yshift: 2,
            font: { size: 12 },
        }));
    if (labels.length && !labels[0].text.startsWith("session")) {
        labels.push({
            text: "session",
            x: 0,
            xref: "paper",
            xanchor: "left",
            y: 1,
            yref: "paper",
            yanchor: "bottom",
            yshift: 16,
            showarrow: false,
            font: { size: 12 },
        });
    }
    // One label for each unbroken row of such sessions.
    const undecided = undecidedOf(run, algorithm);
    const rows = [];
    for (const span of spans.filter((own) => undecided.includes(own.session))) {
        const row = rows.at(-1);
        if (row && row.end === span.before) row.end = span.before + span.rounds;
        else rows.push({ start: span.before, end: span.before + span.rounds });
    }
    for (const row of rows) {
        if ((row.end - row.start) * perRound < 84) continue;
        // Curves leave the corner from which they set out.
        const [y, yanchor, yshift] = run.judge.higher ? [0, "bottom", 4] : [1, "top", -4];
        labels.push({
            text: "no choice yet",
            x: (row.start + row.end + 1) / 2,
            xref: "x",
            y,
            yref: "paper",
            yanchor,
            yshift,
            showarrow: false,
            font: { size: 12, color: palette().muted },
        });
    }
    return labels;
}

function sameNote(run, algorithm) {
    const undecided = undecidedOf(run, algorithm);
    const groups = new Map();
    for (const stretch of stretchesOf(run, algorithm)) {
        if (stretch.methods.length < 2 || undecided.includes(stretch.session)) continue;
        const names = listed(stretch.methods);
        groups.set(names, [...(groups.get(names) ?? []), stretch.session]);
    }
    const sentences = [...groups].map(
        ([names, sessions]) => `Grey in ${sessionList(sessions)}: ${names}, which did the same.`,
    );
    if (undecided.length)
        sentences.unshift(
            `Grey in ${sessionList(undecided)}: all starts, for there was no choice yet.`,
        );
    return sentences.join(" ");
}

function sessionList(sessions) {
    if (sessions.length > 4) return `${sessions.length} sessions`;
    return `session${sessions.length > 1 ? "s" : ""} ${listed(sessions.map(String))}`;
}

function roundsInWords(run, algorithm) {
    const spans = spansOf(run, algorithm);
    const last = spans.at(-1);
    if (!last) return "No rounds yet.";
    const ends = shownMethods(run).map((method) => {
        const own = stretchesOf(run, algorithm)
            .filter((s) => s.methods.includes(method))
            .at(-1);
        const value = own && pointsOf(shownCurves(own.curves)).at(-1);
        return value ? `${method} ${withUnit(run, value[1])}` : null;
    });
    return (
        `${capital(run.judge.short)} under ${algorithm} over ${last.before + last.rounds} rounds in ` +
        `${counted(spans.length, "session")}. At the end: ${ends.filter(Boolean).join(", ")}.`
    );
}

// --- as a table ---

function roundColumns(run) {
    return [
        { title: "session", number: true, text: (row) => String(row.session) },
        { title: "round", number: true, text: (row) => (row.round ? String(row.round) : "start") },
        ...shownMethods(run).map((method) => ({
            title: method,
            number: true,
            text: (row) => score(run, row.values[method] ?? null),
        })),
    ];
}

function roundRows(run, algorithm, most = Infinity, transitionsOnly = false) {
    const rows = new Map();
    for (const stretch of stretchesOf(run, algorithm)) {
        if (transitionsOnly && transitionOf(run, stretch.session) === null) continue;
        for (const [round, value] of pointsOf(shownCurves(stretch.curves))) {
            if (round > most) break;
            const key = stretch.session * 1e7 + round;
            if (!rows.has(key)) rows.set(key, { session: stretch.session, round, values: {} });
            for (const method of stretch.methods) rows.get(key).values[method] = value;
        }
    }
    return [...rows].sort(([a], [b]) => a - b).map(([, row]) => row);
}

// --- the first rounds ---

const AT_ONCE = 12;

sections.first = (run) => {
    const parts = run.algorithms.map((algorithm) => firstRounds(run, algorithm)).filter(Boolean);
    if (!parts.length) return [nothing(run.nothing_yet)];
    return [
        said(
            "The sessions that began with a choice of models, enlarged. Round 0 is what the start itself achieves, " +
                "before anything is trained.",
        ),
        ...parts.flat(),
    ];
};

// As many rounds as the window has over which starts are judged.
function enlarged(run) {
    const longest = Math.max(1, ...run.curves.map((curve) => curve.rounds));
    return Math.min(longest, Math.max(3, Math.min(run.windows[0], 30)));
}

function firstRounds(run, algorithm) {
    const name = `first ${algorithm}`;
    const spans = spansOf(run, algorithm).filter((span) => span.transition !== null);
    if (!spans.length) return null;
    const pages = Math.ceil(spans.length / AT_ONCE);
    const options = Array.from({ length: pages }, (_, n) => {
        const part = spans.slice(n * AT_ONCE, (n + 1) * AT_ONCE);
        return [n, `sessions ${part[0].session} to ${part.at(-1).session}`];
    });
    const shown = () => {
        const now = spansOf(currentRun(), algorithm).filter((span) => span.transition !== null);
        const start = pick(name, 0) * AT_ONCE;
        return now.slice(start, start + AT_ONCE);
    };
    const columns = (width) => {
        const most = width < 460 ? 2 : width < 640 ? 3 : 4;
        const rows = Math.ceil(shown().length / most);
        return Math.max(1, Math.ceil(shown().length / rows));
    };
    const grid = (width) =>
        panels(shown().length, columns(width), width, {
            rowHeight: 150,
            gapX: 16,
            gapY: 50,
            left: 40,
            top: 26,
            bottom: 36,
        });
    const chart = figure(name, {
        title: `${run.algorithms.length > 1 ? `${algorithm}: ` : ""}${run.judge.title} by round`,
        tools: pages > 1 ? [picker(name, "Show", options, 0, () => later(charts.get(name)))] : [],
        height: (width) => grid(width).height,
        spec: (width) => firstChart(currentRun(), algorithm, grid(width), shown()),
        summary: () => firstInWords(currentRun(), algorithm, shown()),
        note: () => seedsNote(currentRun()),
        columns: () => roundColumns(currentRun()),
        rows: () => roundRows(currentRun(), algorithm, enlarged(currentRun()), true),
    });
    return [chart];
}

function firstChart(run, algorithm, { places, margin }, spans) {
    const most = enlarged(run);
    const bySession = new Map(spans.map((span, n) => [span.session, places[n]]));
    const traces = lines(run, algorithm, (session) => {
        const place = bySession.get(session);
        return place && { suffix: place.suffix, most, marked: most <= 12, x: (round) => round };
    });
    const layout = { hovermode: "closest", margin, annotations: [] };
    places.forEach((place, n) => {
        const bottom = n + places.filter((other) => other.row === 0).length >= places.length;
        layout[`xaxis${place.suffix}`] = axis({
            domain: place.x,
            anchor: `y${place.suffix}`,
            range: [-0.4, most + 0.4],
            nticks: 6,
            showgrid: false,
            showline: true,
            tickformat: "d",
            title: bottom ? { text: "round", standoff: 4, font: { size: 12 } } : undefined,
        });
        layout[`yaxis${place.suffix}`] = axis({
            domain: place.y,
            anchor: `x${place.suffix}`,
            matches: n ? "y" : undefined,
            showticklabels: place.column === 0,
            nticks: 5,
        });
        layout.annotations.push(panelTitle(place, `session ${spans[n].session}`));
    });
    return { traces, layout };
}

function firstInWords(run, algorithm, spans) {
    const parts = spans.map(({ session }) => {
        const starts = shownMethods(run).map((method) => {
            const own = stretchesOf(run, algorithm).find(
                (s) => s.session === session && s.methods.includes(method),
            );
            const points = own ? pointsOf(shownCurves(own.curves)) : [];
            return points.length && points[0][0] === 0
                ? `${method} ${withUnit(run, points[0][1])}`
                : null;
        });
        return `session ${session}: ${starts.filter(Boolean).join(", ")}`;
    });
    return `${capital(run.judge.short)} in the first ${enlarged(run)} rounds under ${algorithm}. The starts themselves: ${parts.join("; ")}.`;
}
