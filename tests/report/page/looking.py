"""What a browser shows: charts by their data, texts, and what can go wrong with a page."""

from __future__ import annotations

from typing import Any

from tests.browser import Visit

CHARTS = """() => [...document.querySelectorAll('.plot')].map((plot) => ({
  section: plot.closest('section').id,
  label: plot.getAttribute('aria-label'),
  traces: plot.data ? plot.data.length : 0,
  pieces: plot.querySelectorAll(
    '.scatterlayer path, .barlayer path, .heatmaplayer image, .boxlayer path').length,
}))"""
SECTIONS = (
    *("verdict", "accuracy", "first", "scores", "costs", "presence"),
    *("origins", "map", "devices", "events", "settings"),
)


def charts(visit: Visit) -> list[dict[str, Any]]:
    """Return every chart: its section, its text, and how much of it is drawn."""
    found: list[dict[str, Any]] = visit.page.evaluate(CHARTS)
    return found


def traces(visit: Visit, section: str, number: int = 0) -> list[dict[str, Any]]:
    """Return what a chart of a section was given to draw."""
    found: list[dict[str, Any]] = visit.page.evaluate(
        """([section, number]) => {
          const plot = document.querySelectorAll(`#${section} .plot`)[number];
          return JSON.parse(JSON.stringify(plot.data));
        }""",
        [section, number],
    )
    return found


def names(visit: Visit, section: str) -> set[str]:
    """Return the methods of which a chart of curves has a line."""
    return {
        trace["name"]
        for trace in traces(visit, section)
        if trace.get("name") and trace.get("mode") == "lines+markers"
    }


def width_beyond(visit: Visit) -> int:
    """Return by how much the page is wider than the window."""
    beyond: int = visit.page.evaluate(
        """() => Math.max(
          document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"""
    )
    return beyond


def unclean(visit: Visit) -> list[str]:
    """Return what no page of ours has: handlers in markup, foreign elements, links elsewhere."""
    found: list[str] = visit.page.evaluate(
        """() => {
          const odd = [];
          const foreign = ['audio', 'base', 'embed', 'form', 'iframe', 'img', 'object', 'video'];
          for (const element of document.querySelectorAll('*')) {
            const tag = element.tagName.toLowerCase();
            if (foreign.includes(tag)) odd.push(tag);
            for (const { name, value } of element.attributes) {
              if (name.startsWith('on')) odd.push(`${tag} ${name}`);
              if (/^\\s*javascript:/i.test(value)) odd.push(`${tag} ${name}=${value}`);
            }
            const href = element.getAttribute('href') ?? '';
            if (tag === 'a' && !href.startsWith('#')) odd.push(`link to ${href}`);
          }
          const scripts = [...document.scripts].filter((script) => !script.type);
          if (scripts.length !== 2) odd.push(`${scripts.length} scripts`);
          return odd;
        }"""
    )
    return found
