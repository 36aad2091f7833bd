// How devices fare, each on test samples of its own.

sections.devices = (run) => {
    const own = run.devices;
    if (!own.distributions.length) {
        return [
            nothing(
                'How single devices fare was not recorded: test samples have no owners. With partition.kind = "natural" and ' +
                    "test samples that say whose they are (device_test in an .npz file, a device column with --test-split), this section shows it.",
            ),
        ];
    }
    return [
        said(
            `Each device's ${run.judge.short} with the final model of a session, on its own test samples: median, middle half and range of ` +
                "the devices present; the bar marks the mean of the worst tenth.",
        ),
        ...run.algorithms.flatMap((algorithm) => [
            deviceFigure(run, algorithm),
            deviceTable(run, algorithm),
        ]),
    ];
};

function scoresOf(run, algorithm, method, session) {
    return run.devices.distributions.filter(
        (own) =>
            own.algorithm === algorithm &&
            own.method === method &&
            own.session === session &&
            !chosen.hiddenSeeds.has(own.seed),
    );
}

const testedSessions = (run, algorithm) =>
    distinct(
        run.devices.distributions
            .filter((own) => own.algorithm === algorithm)
            .map((own) => own.session),
    ).sort((a, b) => a - b);

function deviceFigure(run, algorithm) {
    const name = `devices ${algorithm}`;
    const sessions = testedSessions(run, algorithm);
    // Many boxes side by side say nothing.
    const options = [];
    for (let n = 0; n < sessions.length; n += 8) {
        const part = sessions.slice(n, n + 8);
        options.push([
            n,
            part.length > 1 ? `sessions ${part[0]} to ${part.at(-1)}` : `session ${part[0]}`,
        ]);
    }
    const shown = () =>
        testedSessions(currentRun(), algorithm).slice(pick(name, 0), pick(name, 0) + 8);
    return figure(name, {
        title: `${run.algorithms.length > 1 ? `${algorithm}: ` : ""}${run.judge.title} of devices`,
        tools:
            options.length > 1
                ? [picker(name, "Show", options, 0, () => later(charts.get(name)))]
                : [],
        height: (width) => (width < 560 ? 300 : 340),
        spec: (width) => deviceChart(currentRun(), algorithm, shown(), width),
        summary: () => {
            const now = currentRun();
            const last = testedSessions(now, algorithm).at(-1);
            const parts = shownMethods(now).map((method) => {
                const own = scoresOf(now, algorithm, method, last);
                return `${method}: mean ${score(now, mean(own.map((row) => row.mean)))}, worst tenth ${score(now, mean(own.map((row) => row.worst)))}`;
            });
            return `Scores of single devices under ${algorithm}. After session ${last}: ${parts.join("; ")}.`;
        },
        note: () => `Devices of ${counted(shownSeeds(currentRun()).length, "seed")} together.`,
        columns: () => [
            { title: "session", number: true, text: (row) => String(row.session) },
            { title: "start", head: true, text: (row) => row.method },
            { title: "seed", number: true, text: (row) => String(row.seed) },
            { title: "devices", number: true, text: (row) => whole(row.devices) },
            { title: "mean", number: true, text: (row) => score(currentRun(), row.mean) },
            { title: "worst tenth", number: true, text: (row) => score(currentRun(), row.worst) },
            { title: "spread", number: true, text: (row) => score(currentRun(), row.spread) },
        ],
        rows: () =>
            currentRun().devices.distributions.filter(
                (own) =>
                    own.algorithm === algorithm &&
                    !chosen.hiddenSeeds.has(own.seed) &&
                    !chosen.hiddenMethods.has(own.method),
            ),
    });
}

function quantile(ordered, share) {
    const at = share * (ordered.length - 1);
    const below = Math.floor(at);
    const above = Math.min(below + 1, ordered.length - 1);
    return ordered[below] + (at - below) * (ordered[above] - ordered[below]);
}

function deviceChart(run, algorithm, sessions, width) {
    const methods = shownMethods(run);
    const wide = 0.8 / Math.max(1, methods.length);
    const pixels = ((width - 54) / Math.max(1, sessions.length)) * wide;
    const traces = methods.flatMap((method, n) => {
        const colour = colourOf(run.looks[method]);
        const boxes = sessions
            .map((session, place) => {
                const own = scoresOf(run, algorithm, method, session);
                const values = own
                    .flatMap((row) => row.values)
                    .filter((value) => value !== null)
                    .sort((a, b) => a - b);
                return {
                    session,
                    values,
                    worst: mean(own.map((row) => row.worst)),
                    x: place + (n - (methods.length - 1) / 2) * wide,
                };
            })
            .filter((box) => box.values.length);
        const texts = boxes.map(
            (box) =>
                `${plain(method)}, session ${box.session}<br>median ${withUnit(run, quantile(box.values, 0.5))}<br>` +
                `middle half ${range(run, quantile(box.values, 0.25), quantile(box.values, 0.75))}<br>worst tenth ${withUnit(run, box.worst)}`,
        );
        return [
            {
                type: "box",
                x: boxes.map((box) => box.x),
                q1: boxes.map((box) => quantile(box.values, 0.25)),
                median: boxes.map((box) => quantile(box.values, 0.5)),
                q3: boxes.map((box) => quantile(box.values, 0.75)),
                lowerfence: boxes.map((box) => box.values[0]),
                upperfence: boxes.map((box) => box.values.at(-1)),
                width: wide * 0.62,
                line: { color: colour, width: 1.3 },
                fillcolor: faded(colour, 0.16),
                hoverinfo: "skip",
                whiskerwidth: 0.4,
            },
            {
                type: "scatter",
                mode: "markers",
                x: boxes.map((box) => box.x),
                y: boxes.map((box) => box.worst),
                hovertemplate: "%{text}<extra></extra>",
                text: texts,
                marker: {
                    symbol: "line-ew",
                    size: Math.min(12, 0.62 * pixels),
                    color: colour,
                    line: { color: colour, width: 2.6 },
                },
            },
            {
                type: "scatter",
                mode: "markers",
                x: boxes.map((box) => box.x),
                y: boxes.map((box) => quantile(box.values, 0.5)),
                hovertemplate: "%{text}<extra></extra>",
                text: texts,
                marker: {
                    symbol: run.looks[method].marker,
                    size: Math.min(6, 0.5 * pixels),
                    color: colour,
                },
            },
        ];
    });
    return {
        traces,
        layout: {
            hovermode: "closest",
            boxmode: "overlay",
            margin: { l: 44, r: 10, t: 12, b: 38, pad: 0 },
            xaxis: axis({
                showgrid: false,
                tickvals: sessions.map((_, n) => n),
                ticktext: sessions.map(String),
                range: [-0.5, sessions.length - 0.5],
                title: { text: "session", standoff: 5, font: { size: 12.5 } },
            }),
            yaxis: axis({ nticks: 6 }),
        },
    };
}

function deviceTable(run, algorithm) {
    const own = run.devices.tables.find((each) => each.algorithm === algorithm);
    if (!own) return h("div", {});
    const name = `device table ${algorithm}`;
    const holder = h("div", {});
    const refill = () => {
        const wanted = String(pick(name, "")).toLowerCase();
        const rows = own.rows.filter((row) => row.name.toLowerCase().includes(wanted));
        holder.replaceChildren(
            rows.length
                ? table(name, {
                      columns: [
                          { title: "device", head: true, text: (row) => row.name },
                          {
                              title: "tested",
                              number: true,
                              text: (row) => counted(row.times, "time"),
                              value: (row) => row.times,
                          },
                          ...run.methods.map((method) => ({
                              title: method,
                              number: true,
                              text: (row) => score(run, row.means[method] ?? null),
                              value: (row) => row.means[method] ?? null,
                          })),
                      ],
                      rows,
                      sortable: true,
                      tall: true,
                      label: `Devices under ${algorithm}`,
                  })
                : h("p", {}, "No device is called that."),
        );
    };
    const search = h("input", {
        type: "search",
        value: pick(name, ""),
        oninput: (event) => {
            chosen.picks.set(name, event.target.value);
            refill();
        },
    });
    refill();
    const left = own.left_out
        ? ` The ${whole(own.rows.length)} with the worst scores are listed; ${whole(own.left_out)} more are not.`
        : "";
    return disclosure(
        `devices ${algorithm}`,
        `Every device${run.algorithms.length > 1 ? ` under ${algorithm}` : ""} (${whole(own.rows.length)})`,
        () => [
            h(
                "p",
                { class: "said" },
                `Mean ${run.judge.short} over seeds and sessions with a choice; click a heading to sort.${left}`,
            ),
            h("p", { class: "tools" }, h("label", { class: "pick" }, "Find a device", search)),
            holder,
        ],
    );
}
