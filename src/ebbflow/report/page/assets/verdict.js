// The answer: which start won, how sure that is, and the size of the run.

const sections = {};

sections.verdict = (run) => {
    const several = run.verdicts.length > 1;
    const rulings = run.verdicts.map((verdict) => ruling(verdict, several));
    if (!rulings.length)
        rulings.push(h("div", { class: "ruling" }, h("p", { class: "first" }, run.nothing_yet)));
    return [h("div", { class: several ? "several" : null }, rulings), headline(run)];
};

// The first sentence is the answer; what follows says how sure it is, and what it cost.
function ruling(verdict, several) {
    // A number and its sign stay on one line.
    const sentence = verdict.sentence.replaceAll(" %", "\u00a0%");
    const end = sentence.indexOf(". ") + 1 || sentence.length;
    return h(
        "div",
        { class: "ruling" },
        several ? h("h3", {}, verdict.algorithm) : null,
        h("p", { class: "first" }, sentence.slice(0, end)),
        end < sentence.length ? h("p", { class: "rest" }, sentence.slice(end).trim()) : null,
    );
}

function headline(run) {
    const facts = run.headline;
    const [first] = run.verdicts;
    const single = run.verdicts.length === 1 ? first : null;
    const entries = [];
    if (single) {
        entries.push([
            "best start",
            h("span", {}, swatch(run.looks[single.winner]), " ", single.winner),
            `${withUnit(run, single.score)} over the first ${single.window > 1 ? `${single.window} rounds` : "round"}`,
        ]);
        if (single.lead !== null) {
            const sure =
                single.low === null
                    ? "one seed"
                    : `interval ${range(run, single.low, single.high)}`;
            entries.push(["lead", score(run, single.lead) + run.judge.points, sure]);
        }
    }
    entries.push(
        ["seeds", ofPlanned(run.seeds.length, run.planned.seeds.length)],
        ["sessions", ofPlanned(facts.sessions, run.planned.sessions)],
        ["rounds", whole(facts.rounds), "of each method and seed"],
        [
            "devices",
            whole(facts.devices),
            facts.present === null ? null : `${significant(facts.present, 3)} at a time`,
        ],
        ["computed in", duration(facts.seconds)],
    );
    return h(
        "dl",
        { class: "numbers" },
        entries.map(([name, value, more]) =>
            h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : null)),
        ),
    );
}

const ofPlanned = (count, planned) =>
    count === planned ? whole(count) : `${whole(count)} of ${whole(planned)}`;

// How far the run is, or how many of the runs are how far.
function showState() {
    byId("state").replaceChildren(
        ...(page.overview ? stateCounts() : stateLine(currentRun().state)),
    );
}

function stateCounts() {
    const states = new Map(page.overview.rows.map((row) => [row.run, row.state]));
    const counts = ["running", "stopped", "finished"].map((word) => [
        word,
        [...states.values()].filter((own) => own === word).length,
    ]);
    return [
        counts
            .filter(([, count]) => count)
            .map(([word, count]) => `${count} ${word}`)
            .join(", "),
    ];
}

function stateLine(state) {
    const place = state.state === "finished" ? "" : state.place;
    const parts = [
        h("span", { class: `dot ${state.state}`, "aria-hidden": "true" }),
        h("b", {}, state.state),
    ];
    if (place) parts.push(state.state === "stopped" ? ` at ${place}` : `: ${place}`);
    if (state.trouble) parts.push(` (${state.trouble})`);
    if (state.state === "running" && state.done !== null && state.total) {
        parts.push(
            h("progress", { value: state.done, max: state.total, "aria-label": "rounds done" }),
        );
    }
    return parts;
}
