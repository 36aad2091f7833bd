// Warnings and events: what to know before trusting a number.

const MANY = 8;

sections.events = (run) => {
    const { rows, left_out: leftOut } = run.events;
    if (!rows.length)
        return [
            said(
                "Nothing went wrong: there are no warnings, no updates were left out and no method ended early.",
            ),
        ];
    const kinds = distinct(rows.map((row) => row.kind));
    const holder = h("div", {});
    const refill = () => {
        const hidden = pick("hidden events", []);
        const wanted = pick("wanted events", "").toLowerCase();
        const shown = rows.filter(
            (row) =>
                !hidden.includes(row.kind) &&
                `${row.where} ${row.text}`.toLowerCase().includes(wanted),
        );
        holder.replaceChildren(
            shown.length
                ? table("events", {
                      columns: [
                          {
                              title: "what",
                              head: true,
                              text: (row) =>
                                  h(
                                      "span",
                                      { class: `kind ${row.kind.replace(" ", "-")}` },
                                      row.kind,
                                  ),
                          },
                          { title: "where", text: (row) => row.where },
                          { title: "", class: "text wide", text: (row) => row.text },
                      ],
                      rows: shown,
                      label: "Warnings and events",
                  })
                : h("p", {}, "Nothing matches."),
        );
    };
    refill();
    const filters =
        rows.length > MANY
            ? h(
                  "div",
                  { class: "tools" },
                  kinds.length > 1
                      ? kinds.map((kind) =>
                            chip(
                                "checkbox",
                                `${kind} (${rows.filter((row) => row.kind === kind).length})`,
                                !pick("hidden events", []).includes(kind),
                                (on) => {
                                    const hidden = pick("hidden events", []).filter(
                                        (own) => own !== kind,
                                    );
                                    chosen.picks.set(
                                        "hidden events",
                                        on ? hidden : [...hidden, kind],
                                    );
                                    refill();
                                },
                            ),
                        )
                      : [],
                  h(
                      "label",
                      { class: "pick" },
                      "Find",
                      h("input", {
                          type: "search",
                          value: pick("wanted events", ""),
                          oninput: (event) => {
                              chosen.picks.set("wanted events", event.target.value);
                              refill();
                          },
                      }),
                  ),
              )
            : null;
    return [
        said(
            `${whole(rows.length)} ${rows.length === 1 ? "entry" : "entries"}` +
                `${leftOut ? `; ${whole(leftOut)} more are in events.jsonl` : ""}.`,
        ),
        filters,
        holder,
    ].filter(Boolean);
};

// A checkbox or radio button as a pill, with what is drawn beside its name.
function chip(type, text, checked, changed, { group, picture } = {}) {
    const input = h("input", {
        type,
        checked,
        name: group,
        onchange: (event) => changed(event.target.checked),
    });
    return h("label", { class: "chip" }, input, h("span", {}, picture ?? null, text));
}
