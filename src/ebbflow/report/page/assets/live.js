// The page of a run that goes on: asks its own address for what is new, and shows it.

const SELDOM = 15;
// Answers without a run that goes on after which it asks seldom: the last content may take a while.
const OFTEN = 5;
const SPOKEN = 20_000;
const PATIENCE = 3;
// Curves are drawn again after so many times as long as drawing took: it must not slow the run.
const SHARE = 100;

const liveState = {
    cursor: page.live?.cursor ?? "",
    failures: 0,
    timer: 0,
    over: false,
    idle: 0,
    spokenAt: 0,
    drawnAt: 0,
};

// Rounds and starts as they come in: [run, algorithm, method, seed, session, ...].
function curveFor([place, algorithm, method, seed, session]) {
    const run = runAt(place);
    const key = keyOf({ algorithm, method, seed, session });
    let curve = run.byKey.get(key);
    if (!curve) {
        curve = {
            algorithm,
            method,
            seed,
            session,
            rounds: 0,
            start: null,
            accuracy: [],
            loss: [],
        };
        run.byKey.set(key, curve);
        run.curves.push(curve);
    }
    return { run, curve };
}

// Returns the runs whose curves have changed.
function applyRows({ starts = [], rounds = [] }) {
    const changed = new Set();
    for (const row of starts) {
        const { run, curve } = curveFor(row);
        [curve.start, curve.rounds] = [row[5], Math.max(curve.rounds, row[6] ?? 0)];
        changed.add(run);
    }
    for (const row of rounds) {
        const { run, curve } = curveFor(row);
        const [round, accuracy, loss] = row.slice(5);
        curve.accuracy[round - 1] = accuracy;
        curve.loss[round - 1] = loss;
        curve.rounds = Math.max(curve.rounds, round);
        changed.add(run);
    }
    for (const run of changed) {
        run.found.clear();
        for (const [list, name] of [
            ["methods", "method"],
            ["seeds", "seed"],
            ["algorithms", "algorithm"],
        ]) {
            const there = new Set(
                run.curves.filter((curve) => curve.accuracy.length).map((curve) => curve[name]),
            );
            const now = run.planned[list].filter((value) => there.has(value));
            run.grown ||= now.length !== run[list].length;
            run[list] = now;
        }
    }
    return changed;
}

function applyContent(content, draw) {
    // One run has become several, or the other way round: that takes another page.
    if (Boolean(content.overview) !== Boolean(page.overview)) {
        location.reload();
        return;
    }
    const { runs: fresh, ...rest } = content;
    Object.assign(page, rest);
    runs.length = 0;
    runs.push(...fresh.map(prepared));
    if (chosen.run >= runs.length) chosen.run = 0;
    if (page.overview) fill("overview", draw);
    fillAll({ onlyNear: sparing(), draw: draw || !sparing() });
}

function applyStates(states) {
    states.slice(0, runs.length).forEach((state, n) => {
        if (!state) return;
        const run = runAt(n);
        Object.assign(run.state, state);
        run.state.place = state.place ?? placeOf(state);
        for (const row of page.overview?.rows ?? []) if (row.run === n) row.state = state.state;
    });
    showState();
}

function placeOf({ seed, session, round, done, total }) {
    if (seed === null || seed === undefined) return "before the first round";
    const count =
        Number.isInteger(done) && Number.isInteger(total)
            ? ` (${whole(done)} of ${whole(total)} rounds)`
            : "";
    return `seed ${seed}, session ${session}, round ${round}${count}`;
}

const statesOf = (state) =>
    Array.isArray(state) ? state : (state?.runs ?? (state ? [state] : []));

window.ebbflowApply = (changes, { draw = true } = {}) => {
    if (changes.content) applyContent(changes.content, draw);
    const changed = applyRows(changes);
    const states = statesOf(changes.state);
    applyStates(states);
    const run = currentRun();
    if (run.grown) {
        // A method, seed or algorithm has done its first round: it needs controls and charts.
        run.grown = false;
        fillAll({ onlyNear: sparing(), draw });
    } else if (!changes.content) {
        if (changed.has(run)) {
            for (const chart of growingCharts()) chart.stale = true;
            countUp(run);
        }
        if (draw) [...charts.values()].filter((c) => c.stale && inView(c)).forEach(later);
    }
    if (liveState.going && !sparing()) {
        catchUp();
        for (const chart of charts.values()) if (chart.stale) later(chart);
    }
    if (changes.cursor !== undefined) liveState.cursor = changes.cursor;
    const going = states.some((state) => state?.state === "running");
    if (liveState.going && !going)
        speak(states, states.every((s) => s?.state === "finished") ? "Finished." : "Stopped.");
    else speak(states);
    liveState.going = going;
};

const growingCharts = () => [...charts.values()].filter((c) => /^(accuracy|first) /.test(c.name));

// Whether it is time to draw curves again, by how long that took the last time.
function mayDraw() {
    const took = sum([...charts.values()].map((c) => (c.took && inView(c) ? c.took : 0)));
    if (performance.now() - liveState.drawnAt < SHARE * took) return false;
    liveState.drawnAt = performance.now();
    return true;
}

// The counters of the headline move with the curves; all else waits for the full content.
function countUp(run) {
    const longest = new Map();
    for (const curve of run.curves)
        longest.set(
            curve.session,
            Math.max(longest.get(curve.session) ?? 0, curve.accuracy.length),
        );
    run.headline.rounds = sum([...longest.values()]);
    run.headline.sessions = [...longest.values()].filter(Boolean).length;
    document.querySelector("#verdict .numbers")?.replaceWith(headline(run));
}

function speak(states, sentence) {
    const now = Date.now();
    if (!sentence && now - liveState.spokenAt < SPOKEN) return;
    const [state] = states;
    const text = sentence ?? (state ? `${state.state}: ${state.place ?? placeOf(state)}` : "");
    if (!text) return;
    liveState.spokenAt = now;
    byId("spoken").textContent = text;
}

// --- asking ---

function askLater(seconds) {
    clearTimeout(liveState.timer);
    if (!liveState.over) liveState.timer = setTimeout(ask, 1000 * seconds);
}

async function ask() {
    if (document.hidden || liveState.over) return;
    try {
        const answer = await fetch(`changes?after=${encodeURIComponent(liveState.cursor)}`, {
            cache: "no-store",
        });
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        window.ebbflowApply(await answer.json(), { draw: mayDraw() });
        liveState.failures = 0;
        liveState.idle = liveState.going ? 0 : liveState.idle + 1;
        const often = liveState.idle < OFTEN;
        askLater(often ? page.live.every : Math.max(SELDOM, page.live.every));
    } catch {
        liveState.failures += 1;
        if (liveState.failures < PATIENCE) askLater(page.live.every);
        else endLive();
    }
}

function endLive() {
    liveState.over = true;
    clearTimeout(liveState.timer);
    byId("state").replaceChildren(
        h("b", {}, "The live view has ended."),
        " This page stays as it is.",
    );
    speak([], "The live view has ended.");
}

if (page.live) {
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) clearTimeout(liveState.timer);
        else ask();
    });
    askLater(page.live.every);
}
