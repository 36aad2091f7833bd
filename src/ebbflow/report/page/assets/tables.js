// Tables that can be sorted, and that scroll within their own box.

const FOLDED = 60;

// Columns: {title, text(row), value(row), number, head, class}; `value` is what is sorted by.
function table(name, { caption, columns, rows, sortable = false, tall = false, label }) {
    const holder = h("div", {
        class: `scroll${tall ? " tall" : ""}`,
        role: "region",
        tabindex: "0",
        "aria-label": label ?? caption ?? "Table",
    });
    // Beside the box, not in it: a caption is not moved sideways.
    const heading = caption ? [h("p", { class: "caption" }, caption)] : [];
    const wrap = h("div", { class: "table" });

    function draw() {
        const sorting = chosen.sorting.get(name);
        const ordered = sorting ? sorted(rows, columns[sorting.column], sorting.falling) : rows;
        const folded = ordered.length > FOLDED && !chosen.unfolded.has(name);
        const shown = folded ? ordered.slice(0, FOLDED) : ordered;
        holder.replaceChildren(
            h(
                "table",
                {},
                columns.some((column) => column.title)
                    ? h(
                          "thead",
                          {},
                          h(
                              "tr",
                              {},
                              columns.map((column, place) => title(column, place, sorting)),
                          ),
                      )
                    : null,
                h(
                    "tbody",
                    {},
                    shown.map((row) => line(row)),
                ),
            ),
        );
        wrap.replaceChildren(...heading, holder);
        if (folded) {
            const unfold = () => {
                chosen.unfolded.add(name);
                draw();
            };
            wrap.append(
                h(
                    "p",
                    {},
                    h(
                        "button",
                        { type: "button", class: "quiet", onclick: unfold },
                        `Show all ${whole(ordered.length)} rows`,
                    ),
                ),
            );
        }
    }

    function title(column, place, sorting) {
        const own = sorting && sorting.column === place;
        const direction = own ? (sorting.falling ? "descending" : "ascending") : null;
        const props = {
            scope: "col",
            class: column.number ? "number" : null,
            "aria-sort": sortable ? (direction ?? "none") : null,
        };
        if (!sortable) return h("th", props, column.title);
        const sort = () => {
            chosen.sorting.set(name, {
                column: place,
                falling: own ? !sorting.falling : !!column.number,
            });
            draw();
            holder.querySelectorAll("thead button")[place].focus();
        };
        return h("th", props, h("button", { type: "button", onclick: sort }, column.title));
    }

    function line(row) {
        return h(
            "tr",
            { class: row.chosen ? "chosen" : null },
            columns.map((column) => {
                const content = column.text(row);
                const long =
                    typeof content === "string" && content.length > 36 && !column.number
                        ? "long"
                        : "";
                if (column.head) return h("th", { scope: "row", class: long || null }, content);
                const classes = [
                    column.number ? "number" : "",
                    column.class ?? "",
                    column.best?.(row) ? "best" : "",
                    long,
                ];
                return h("td", { class: classes.filter(Boolean).join(" ") || null }, content);
            }),
        );
    }

    draw();
    return wrap;
}

function sorted(rows, column, falling) {
    const value = column.value ?? column.text;
    const ordered = [...rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        // What is not known comes last, whichever way the rest is sorted.
        if (x === null || y === null) return (x === null) - (y === null);
        if (typeof x === "number" && typeof y === "number") return falling ? y - x : x - y;
        const order = String(x).localeCompare(String(y), "en", { numeric: true });
        return falling ? -order : order;
    });
    return ordered;
}

// A method's name with the line and the marker by which it is drawn.
function methodName(run, method) {
    return h("span", {}, swatch(run.looks[method]), " ", method);
}

const DASHES = {
    solid: "",
    dash: "6 4",
    dot: "2 3",
    dashdot: "6 3 2 3",
    longdash: "10 4",
    longdashdot: "10 3 2 3",
};

function swatch(look) {
    const marks = {
        circle: svg("circle", { cx: 14, cy: 6, r: 3.6 }),
        square: svg("rect", { x: 10.6, y: 2.6, width: 6.8, height: 6.8 }),
        diamond: svg("path", { d: "M14 1.6 18.4 6 14 10.4 9.6 6Z" }),
        "triangle-up": svg("path", { d: "M14 1.8 18.2 9.4H9.8Z" }),
        "triangle-down": svg("path", { d: "M14 10.2 18.2 2.6H9.8Z" }),
        cross: svg("path", { d: "M12.8 2h2.4v2.8H18v2.4h-2.8V10h-2.4V7.2H10V4.8h2.8Z" }),
        x: svg("path", {
            d: "m11 2 3 3 3-3 1.2 1.2-3 2.8 3 2.8L17 10l-3-3-3 3-1.2-1.2 3-2.8-3-2.8Z",
        }),
        star: svg("path", {
            d: "m14 1.4 1.3 3 3.2.3-2.4 2.1.7 3.2-2.8-1.7-2.8 1.7.7-3.2-2.4-2.1 3.2-.3Z",
        }),
        hexagon: svg("path", { d: "M14 1.8 17.8 4v4L14 10.2 10.2 8V4Z" }),
    };
    const mark = marks[look.marker] ?? marks.circle;
    mark.setAttribute("class", "mark");
    const picture = svg(
        "svg",
        { viewBox: "0 0 28 12", class: "swatch", "aria-hidden": "true" },
        mark,
    );
    if (look.dash in DASHES) {
        picture.prepend(
            svg("line", { x1: 0, y1: 6, x2: 28, y2: 6, "stroke-dasharray": DASHES[look.dash] }),
        );
    } else {
        picture.setAttribute("viewBox", "8 0 12 12");
        picture.classList.add("lineless");
    }
    picture.style.color = `light-dark(${look.light}, ${look.dark})`;
    return picture;
}
