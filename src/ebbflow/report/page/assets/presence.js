// Who was there when: devices by sessions, and what each session holds.

const VISITS = ["absent", "joined", "stayed", "returned"];

sections.presence = (run) => {
    if (!run.presence.length) return [nothing("No session has begun yet.")];
    const seeds = run.presence.map((facts) => [facts.seed, `seed ${facts.seed}`]);
    const tools =
        seeds.length > 1
            ? [picker("presence", "Under", seeds, seeds[0][0], () => fill("presence"))]
            : [];
    const facts = presenceOf(run);
    return [
        said(
            "Every row is a device, every column a session; devices are ordered by their first session. Below, how many there were.",
        ),
        presenceFigure(run, tools),
        sessionTable(run, facts),
    ];
};

const presenceOf = (run) =>
    run.presence.find((facts) => facts.seed === pick("presence", null)) ?? run.presence[0];

function presenceFigure(run, tools) {
    const bodyHeight = () => {
        const rows = presenceOf(currentRun()).names.length;
        return Math.round(
            Math.min(560, Math.max(110, rows * (rows > 160 ? 2.6 : rows > 24 ? 5 : 10))),
        );
    };
    const facts = presenceOf(run);
    const some = facts.every > 1 ? ` (every ${ordinal(facts.every)} is shown)` : "";
    return figure("presence", {
        title: `${counted(facts.devices, "device")}${some}`,
        tools,
        legendless: true,
        legend: h(
            "ul",
            { class: "legend" },
            VISITS.slice(1)
                .concat("absent")
                .map((visit) => {
                    const block = h("span", { class: "block", "aria-hidden": "true" });
                    block.style.background = `light-dark(${PALETTES.light[visit]}, ${PALETTES.dark[visit]})`;
                    return h(
                        "li",
                        {},
                        block,
                        {
                            joined: "there for the first time",
                            stayed: "stayed",
                            returned: "returned",
                            absent: "absent",
                        }[visit],
                    );
                }),
        ),
        height: () => bodyHeight() + 28 + 86 + 40,
        spec: () => presenceChart(presenceOf(currentRun()), bodyHeight()),
        summary: () => {
            const now = presenceOf(currentRun());
            return `Devices by session under seed ${now.seed}. ${now.sessions
                .map(
                    (s) =>
                        `Session ${s.session}: ${s.devices} devices, ${s.joined} new, ${s.returned} returned, ${s.left} left`,
                )
                .join(". ")}.`;
        },
        columns: () => [
            { title: "device", head: true, text: (row) => row.name },
            { title: "samples", number: true, text: (row) => whole(row.samples) },
            { title: "sessions", text: (row) => row.sessions },
        ],
        rows: () => {
            const now = presenceOf(currentRun());
            return now.names.map((name, n) => ({
                name,
                samples: now.samples[n],
                sessions: now.sessions
                    .filter((_, at) => now.visits[n][at] !== "0")
                    .map((s) => s.session)
                    .join(", "),
            }));
        },
    });
}

const ordinal = (n) =>
    `${n}${{ 1: "st", 2: "nd", 3: "rd" }[n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? "th"}`;

function presenceChart(facts, body) {
    const colours = palette();
    const sessions = facts.sessions.map((row) => row.session);
    const scale = VISITS.flatMap((visit, n) => [
        [n / 4, colours[visit]],
        [(n + 1) / 4, colours[visit]],
    ]);
    const height = body + 28 + 86;
    const stacked = (visit, counts) => ({
        type: "bar",
        x: sessions,
        y: counts,
        marker: { color: colours[visit] },
        xaxis: "x",
        yaxis: "y2",
        hovertemplate: "%{customdata}<extra></extra>",
        customdata: sessions.map((s, n) => `session ${s}: ${counts[n]} ${visit}`),
    });
    const tight = sessions.length > 30;
    return {
        traces: [
            {
                type: "heatmap",
                x: sessions,
                y: facts.names.map((_, n) => n),
                zmin: 0,
                zmax: 4,
                colorscale: scale,
                showscale: false,
                z: facts.visits.map((own) => [...own].map((sign) => Number(sign) + 0.5)),
                text: facts.names.map((name, n) =>
                    sessions.map(
                        (session, at) =>
                            `${plain(name)}<br>session ${session}: ${VISITS[Number(facts.visits[n][at])]}<br>${whole(facts.samples[n])} samples`,
                    ),
                ),
                hoverinfo: "text",
                xgap: tight ? 0 : 2,
                ygap: facts.names.length <= 24 ? 1 : 0,
            },
            stacked(
                "stayed",
                facts.sessions.map((s) => s.devices - s.joined - s.returned),
            ),
            stacked(
                "returned",
                facts.sessions.map((s) => s.returned),
            ),
            stacked(
                "joined",
                facts.sessions.map((s) => s.joined),
            ),
        ],
        layout: {
            hovermode: "closest",
            barmode: "stack",
            bargap: 0.35,
            margin: { l: 44, r: 10, t: 6, b: 34, pad: 0 },
            xaxis: axis({
                anchor: "y2",
                showgrid: false,
                title: { text: "session", standoff: 4, font: { size: 12.5 } },
                tickformat: "d",
                ...(sessions.length <= 30 ? { tickvals: sessions } : {}),
                range: [sessions[0] - 0.5, sessions.at(-1) + 0.5],
            }),
            yaxis: axis({
                domain: [(86 + 28) / height, 1],
                range: [facts.names.length - 0.5, -0.5],
                showticklabels: false,
                showgrid: false,
            }),
            yaxis2: axis({
                domain: [0, 86 / height],
                rangemode: "tozero",
                nticks: 3,
                fixedrange: true,
            }),
        },
    };
}

function sessionTable(run, facts) {
    const name = (row) =>
        row.session <= run.pilot ? `${row.session} (pilot)` : String(row.session);
    return table("sessions", {
        caption: "What each session holds; “left” counts devices of the session before.",
        columns: [
            { title: "session", head: true, text: name },
            { title: "rounds", number: true, text: (row) => whole(row.rounds) },
            ...["devices", "joined", "returned", "left", "samples"].map((key) => ({
                title: key,
                number: true,
                text: (row) => whole(row[key]),
            })),
            { title: "labels", number: true, text: (row) => whole(row.label_count) },
            { title: "which", class: "text", text: (row) => row.labels },
        ],
        rows: facts.sessions,
        label: "Sessions",
        tall: facts.sessions.length > 14,
    });
}
