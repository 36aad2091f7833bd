// How it was made: the settings, the machine, and the command that makes it again.

sections.settings = (run) => {
    const own = run.settings;
    const nodes = [
        said("The command that makes the run again, its settings, and what it was made with."),
    ];
    if (own.command) {
        nodes.push(
            h("h3", {}, "To repeat it"),
            copyable(own.command),
            h(
                "p",
                { class: "said" },
                "The same versions and the same instructions of the processor give the same bytes.",
            ),
        );
    }
    const changed = table("changed", {
        columns: [
            { title: "setting", head: true, text: (row) => h("code", {}, row.key) },
            {
                title: "value",
                class: "text",
                best: (row) => row.value !== row.default,
                text: (row) => h("code", {}, row.value),
            },
            { title: "default", class: "text", text: (row) => h("code", {}, row.default) },
        ],
        rows: own.changed,
        label: "The main settings, and those that differ from the defaults",
    });
    nodes.push(
        h("h3", {}, "Settings"),
        said("The main ones, and all that differ from the defaults for this data set (in bold)."),
        changed,
        disclosure("all settings", "All settings", () => h("pre", { tabindex: "0" }, own.toml)),
    );
    if (own.environment.length) {
        nodes.push(
            h("h3", {}, "Made with"),
            table("environment", {
                columns: [
                    { title: "", head: true, text: ([name]) => name },
                    { title: "", class: "text", text: ([, value]) => value },
                ],
                rows: own.environment,
                label: "Versions and machine",
            }),
        );
    }
    return nodes;
};

function copyable(text) {
    const pre = h("pre", { tabindex: "0" }, text);
    const button = h(
        "button",
        {
            type: "button",
            class: "quiet",
            onclick: async () => {
                const done = await copied(text, pre);
                button.textContent = done ? "Copied" : "Selected: copy by keyboard";
                setTimeout(() => {
                    button.textContent = "Copy";
                }, 2500);
            },
        },
        "Copy",
    );
    return h("div", { class: "command" }, pre, button);
}

// A file in a browser may not be allowed to use the clipboard: then the text is selected.
async function copied(text, element) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        getSelection().selectAllChildren(element);
        return false;
    }
}
