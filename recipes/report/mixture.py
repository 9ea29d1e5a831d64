"""What was trained on: each phase's share of every source, and how often a source was read."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.recipes.report import charts
from gristmill.recipes.report.blocks import Chart, Note, Section, Table
from gristmill.recipes.report.views import View, heading, missing, sources
from gristmill.recipes.report.words import count, plain, whole


def section(views: Sequence[View]) -> Section:
    blocks: list = [Note(line) for line in missing(views, "tokens", "mix")]
    have = [view for view in views if view.has("tokens", "mix")]
    blocks += [make(views, view) for make in (_shares, _passes, _table) for view in have]
    return Section(
        "mixture",
        "The mixture, phase by phase",
        "The recipe's table of sources and phases, as it came out in tokens. What is good is read again.",
        blocks,
    )


def passes(view: View) -> dict[str, float]:
    """source -> tokens trained on / its own tokens: how often it is read in the whole run."""
    mix, own = view.ledger("mix"), view.ledger("tokens")
    return {s: sum(p.get(s, {"tokens": 0})["tokens"] for p in mix.values()) / own[s]["tokens"] for s in own}


def _shares(views: Sequence[View], view: View) -> Chart:
    mix = view.ledger("mix")
    totals = {phase: sum(e["tokens"] for e in entries.values()) for phase, entries in mix.items()}
    labels = [plain(f"{phase} · {count(totals[phase])}") for phase in mix]
    data = [
        charts.bars(
            labels,
            [100 * entries.get(source, {"tokens": 0})["tokens"] / totals[phase] for phase, entries in mix.items()],
            plain(source),
            number,
            customdata=[[e.get(source, {}).get(u, 0) for u in ("tokens", "documents")] for e in mix.values()],
            hovertemplate="%{x:.1f} %: %{customdata[0]:,} tokens of %{customdata[1]:,} documents"
            "<extra>%{fullData.name}</extra>",
        )
        for number, source in enumerate(sources(views))
        if any(source in entries for entries in mix.values())
    ]
    figure = charts.figure(
        data,
        60 + 34 * len(mix),
        x=charts.axis("share of the phase's tokens (%)", range=[0, 100]),
        y=charts.axis(autorange="reversed", showgrid=False, type="category"),
        barmode="stack",
        bargap=0.25,
    )
    leaders = []
    for phase, entries in mix.items():
        top = max(entries, key=lambda source: entries[source]["tokens"])
        leaders.append(f"{phase} {100 * entries[top]['tokens'] / totals[phase]:.0f} % {top}")
    return Chart(
        figure,
        "Largest source of each phase: " + ", ".join(leaders) + ".",
        "Phases in training order, from the top, with the tokens each holds; the colours are the sources.",
        heading(views, view, "shares"),
        wide=False,
    )


def _passes(views: Sequence[View], view: View) -> Chart:
    times = passes(view)
    order = [source for source in sources(views) if source in times]
    bar = charts.bars(
        [plain(source) for source in order],
        [times[source] for source in order],
        "passes",
        0,
        text=[f"{times[source]:.2f}×" for source in order],
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
        hovertemplate="%{y}: read %{x:.2f} times<extra></extra>",
    )
    looks = [charts.fill(sources(views).index(source)) for source in order]
    bar["marker"] = {
        "color": [look["color"] for look in looks],
        "pattern": {"shape": [look["pattern"]["shape"] for look in looks]},
        "line": {"width": 0},
    }
    figure = charts.figure(
        [bar],
        60 + 30 * len(order),
        x=charts.axis("passes over the source", range=[0, 1.18 * max(times.values())]),
        y=charts.axis(autorange="reversed", showgrid=False, type="category"),
        bargap=0.35,
    )
    most = max(order, key=times.__getitem__)
    return Chart(
        figure,
        f"{most} is read most often, {times[most]:.2f} times.",
        "How often each source is read in the whole run: tokens trained on over the tokens it has.",
        heading(views, view, "passes"),
        wide=False,
    )


def _table(views: Sequence[View], view: View) -> Table:
    mix, own, times = view.ledger("mix"), view.ledger("tokens"), passes(view)
    facts, rows = view.recipe["sources"], []
    for source in (s for s in sources(views) if s in own):
        phases = [entries.get(source, {"tokens": 0})["tokens"] for entries in mix.values()]
        rows.append(
            [
                source,
                facts[source]["domain"],
                facts[source]["licence"],
                *(whole(own[source][unit]) for unit in ("documents", "tokens")),
                *(whole(n) if n else "–" for n in phases),
                whole(sum(phases)),
                f"{times[source]:.2f}",
            ]
        )
    each = [sum(e["tokens"] for e in entries.values()) for entries in mix.values()]
    mine = [sum(entry[unit] for entry in own.values()) for unit in ("documents", "tokens")]
    rows.append(["all", "", "", *map(whole, mine), *map(whole, each), whole(sum(each)), f"{sum(each) / mine[1]:.2f}"])
    return Table(
        ["source", "domain", "licence", "documents", "own tokens", *mix, "trained on", "passes"],
        rows,
        "Tokens of each source in each phase.",
        texts=3,
        title=heading(views, view, "the same in numbers"),
    )
