"""What became of the documents: how many each stage kept, and why the others went."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.recipes.report import charts
from gristmill.recipes.report.blocks import Chart, Note, Section, Table
from gristmill.recipes.report.views import View, heading, missing, sources
from gristmill.recipes.report.words import plain, share, size, whole

HELD_OUT = "validation"  # the one drop that is not a loss


def section(views: Sequence[View]) -> Section:
    blocks: list = [Note(line) for line in missing(views, "split")]
    have = [view for view in views if view.document_stages()]
    blocks += [make(views, view) for make in (_kept, _dropped, _table) for view in have]
    return Section(
        "funnel",
        "From raw text to training text",
        "Every document that is read is either kept or dropped for a named reason; the two always add up.",
        blocks,
    )


def steps(view: View) -> list[tuple[str, dict[str, int]]]:
    """(stage, {source: documents it kept}), led by what was read."""
    stages = view.document_stages()
    first = view.ledger(stages[0])
    read = [("read", {source: entry["in"][0] for source, entry in first.items()})]
    return read + [(key, {s: entry["kept"][0] for s, entry in view.ledger(key).items()}) for key in stages]


def drops(view: View) -> list[tuple[str, str, dict[str, list[int]], int]]:
    """(stage, reason, {source: [documents, bytes]}, documents that came into the stage), in the order of the graph."""
    found = []
    for key in view.document_stages():
        ledger = view.ledger(key)
        came = sum(entry["in"][0] for entry in ledger.values())
        for reason in sorted({reason for entry in ledger.values() for reason in entry["dropped"]}):
            by_source = {s: entry["dropped"][reason] for s, entry in ledger.items() if reason in entry["dropped"]}
            found.append((key, reason, by_source, came))
    return found


def _kept(views: Sequence[View], view: View) -> Chart:
    rows = steps(view)
    labels = [plain(stage) for stage, _ in rows]
    totals = [sum(kept.values()) for _, kept in rows]
    data = [
        charts.bars(
            labels,
            [kept.get(source, 0) for _, kept in rows],
            plain(source),
            number,
            hovertemplate="%{x:,} documents<extra>%{fullData.name}</extra>",
        )
        for number, source in enumerate(sources(views))
        if any(source in kept for _, kept in rows)
    ]
    figure = charts.figure(
        data,
        60 + 30 * len(rows),
        x=charts.axis("documents", tickformat="~s"),
        y=charts.axis(autorange="reversed", showgrid=False, type="category"),
        barmode="stack",
        bargap=0.3,
    )
    says = f"{whole(totals[0])} documents were read, {whole(totals[-1])} are left after {rows[-1][0]}."
    return Chart(
        figure,
        says,
        "Documents left after each stage; the colours are the sources.",
        heading(views, view, "documents kept"),
        wide=False,
    )


def _dropped(views: Sequence[View], view: View) -> Chart | Note:
    rows = drops(view)
    if not rows:
        return Note(f"{view.name}: nothing was dropped.")
    labels = [plain(reason if stage in reason else f"{stage}: {reason}") for stage, reason, _, _ in rows]
    totals = [sum(count for count, _ in by_source.values()) for _, _, by_source, _ in rows]
    data = [
        charts.bars(
            labels,
            [100 * by_source.get(source, [0, 0])[0] / came for _, _, by_source, came in rows],
            plain(source),
            number,
            customdata=[by_source.get(source, [0, 0])[0] for _, _, by_source, _ in rows],
            hovertemplate="%{customdata:,} documents (%{x:.2f} % of what came in)<extra>%{fullData.name}</extra>",
        )
        for number, source in enumerate(sources(views))
        if any(source in by_source for _, _, by_source, _ in rows)
    ]
    counts = [
        {
            "x": 100 * total / came,
            "y": label,
            "text": f" {whole(total)}",
            "showarrow": False,
            "xanchor": "left",
            "font": {"color": charts.MUTED, "size": 11},
        }
        for label, total, (_, _, _, came) in zip(labels, totals, rows, strict=True)
    ]
    most = max(100 * total / came for total, (_, _, _, came) in zip(totals, rows, strict=True))
    figure = charts.figure(
        data,
        60 + 30 * len(rows),
        x=charts.axis("% of what came in", range=[0, 1.2 * most]),
        y=charts.axis(autorange="reversed", showgrid=False, type="category"),
        barmode="stack",
        bargap=0.3,
        annotations=counts,
    )
    worst = max(range(len(rows)), key=totals.__getitem__)
    stage, reason, _, came = rows[worst]
    says = f"Most went in {stage}: {whole(totals[worst])} of {whole(came)} documents ({reason})."
    return Chart(
        figure,
        says,
        f"Why documents went, as a share of what came into the stage, with their number; "
        f"{HELD_OUT} is held out for the scores, not lost.",
        heading(views, view, "reasons"),
        wide=False,
    )


def _table(views: Sequence[View], view: View) -> Table:
    names = [source for source in sources(views) if source in view.ledger(view.document_stages()[0])]
    rows, parts = [], set()
    for key in view.document_stages():
        ledger = view.ledger(key)
        rows.append([f"{key}: kept", *_cells([ledger[s]["kept"] for s in names])])
        for stage, reason, by_source, came in drops(view):
            if stage == key:
                parts.add(len(rows))
                lost = sum(count for count, _ in by_source.values())
                cells = _cells([by_source.get(s, [0, 0]) for s in names])
                rows.append([f"{reason} ({share(lost / came)})", *cells])
    return Table(
        ["stage", *names, "all", "bytes"],
        rows,
        "Documents by source; below each stage what it dropped, with the share of what came in.",
        parts=frozenset(parts),
        title=heading(views, view, "the same in numbers"),
        wide=len(views) == 1,
    )


def _cells(counts: list[list[int]]) -> list[str]:
    documents, total = [c[0] for c in counts], sum(c[1] for c in counts)
    return [whole(n) if n else "–" for n in [*documents, sum(documents)]] + [size(total) if total else "–"]
