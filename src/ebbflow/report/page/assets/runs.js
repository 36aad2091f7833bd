// The runs, and what follows from their curves: sessions side by side, and methods that coincide.

const sources = [...document.querySelectorAll("script.run-data")];
const runs = sources.map(() => null);

// A run's data are read when somebody looks at it: there may be many runs.
function runAt(place) {
    runs[place] ??= prepared(JSON.parse(sources[place].textContent));
    return runs[place];
}

const currentRun = () => runAt(chosen.run);

// While a run goes on, what is out of sight waits: the page must not slow the run.
function sparing() {
    if (!page.live) return false;
    const states = page.overview ? page.overview.rows : [currentRun().state];
    return states.some(({ state }) => state === "running");
}

function prepared(run) {
    run.byKey = new Map();
    for (const curve of run.curves) run.byKey.set(keyOf(curve), curve);
    run.found = new Map();
    // A start looks the same in all runs.
    run.looks = page.looks;
    return run;
}

function keyOf({ algorithm, method, seed, session }) {
    return JSON.stringify([algorithm, method, seed, session]);
}

// What is computed from curves is kept until a curve changes.
function remembered(run, name, compute) {
    if (!run.found.has(name)) run.found.set(name, compute());
    return run.found.get(name);
}

const transitionOf = (run, session) => {
    const number = session - run.pilot - 2;
    return number >= 1 ? number : null;
};

// The sessions of an algorithm side by side on one axis of rounds.
function spansOf(run, algorithm) {
    return remembered(run, `spans ${algorithm}`, () => {
        const lengths = new Map();
        for (const curve of run.curves) {
            if (curve.algorithm !== algorithm) continue;
            const longest = Math.max(curve.rounds, curve.accuracy.length);
            lengths.set(curve.session, Math.max(lengths.get(curve.session) ?? 0, longest));
        }
        let before = 0;
        return [...lengths.keys()]
            .sort((a, b) => a - b)
            .map((session) => {
                const span = { session, before, rounds: lengths.get(session) };
                span.transition = transitionOf(run, session);
                before += span.rounds;
                return span;
            });
    });
}

// For each session the groups of methods that have done the same so far, under every seed.
function stretchesOf(run, algorithm) {
    return remembered(run, `stretches ${algorithm}`, () => {
        const found = [];
        for (const { session } of spansOf(run, algorithm)) {
            const groups = new Map();
            for (const method of run.methods) {
                const own = run.seeds
                    .map((seed) => run.byKey.get(keyOf({ algorithm, method, seed, session })))
                    .filter((curve) => curve && curve.accuracy.length);
                if (!own.length) continue;
                const done = JSON.stringify(own.map((c) => [c.seed, c.accuracy, c.loss]));
                if (groups.has(done)) groups.get(done).methods.push(method);
                else groups.set(done, { session, methods: [method], curves: own });
            }
            found.push(...groups.values());
        }
        return found;
    });
}

// Sessions in which all methods did the same: there was no choice yet.
function undecidedOf(run, algorithm) {
    const bySession = new Map();
    for (const stretch of stretchesOf(run, algorithm)) {
        bySession.set(stretch.session, [...(bySession.get(stretch.session) ?? []), stretch]);
    }
    return [...bySession]
        .filter(([, own]) => own.length === 1 && own[0].methods.length === run.methods.length)
        .filter(() => run.methods.length > 1)
        .map(([session]) => session);
}

// Round, mean, lowest and highest over curves; round 0 is the start, where every seed has one.
function pointsOf(curves) {
    const points = [];
    const starts = curves.map((curve) => curve.start);
    if (curves.length && !starts.includes(null)) points.push([0, starts]);
    const longest = Math.max(0, ...curves.map((curve) => curve.accuracy.length));
    for (let t = 0; t < longest; t += 1) {
        const there = curves.filter((curve) => curve.accuracy.length > t);
        points.push([t + 1, there.map((curve) => curve.accuracy[t])]);
    }
    return points
        .map(([round, values]) => [round, values.filter(Number.isFinite)])
        .filter(([, values]) => values.length)
        .map(([round, values]) => [round, mean(values), Math.min(...values), Math.max(...values)]);
}

// --- what is shown ---

const shownMethods = (run) => run.methods.filter((method) => !chosen.hiddenMethods.has(method));
const shownSeeds = (run) => run.seeds.filter((seed) => !chosen.hiddenSeeds.has(seed));
const shownCurves = (curves) => curves.filter((curve) => !chosen.hiddenSeeds.has(curve.seed));

function seedsNote(run) {
    const seeds = shownSeeds(run);
    if (seeds.length < 2) return seeds.length ? `One seed (${seeds[0]}).` : "No seed is shown.";
    if (chosen.singleSeeds) return `One line for each of ${seeds.length} seeds.`;
    return `Line: mean of ${seeds.length} seeds; band: lowest to highest of them.`;
}

const sessionName = (run, session) =>
    session <= run.pilot ? `session ${session} (pilot)` : `session ${session}`;
