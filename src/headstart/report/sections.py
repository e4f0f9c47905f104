"""The sections of the page, each from the results alone; one without data is left out."""

from __future__ import annotations

from headstart.report import plots
from headstart.report.axis import STRETCHED
from headstart.report.markup import Tile, card, figure, paragraphs, section, table, tiles
from headstart.report.methods import methods_table
from headstart.report.values import (
    MISSING,
    Results,
    head_title,
    main_head,
    number,
    part,
    percent,
    plain,
    points,
    rows,
    settings,
    text,
)

_SPREAD = ("mean", "std", "min", "max")


def arrival(results: Results) -> str:
    words = (
        "A point is the model solved from all uploads so far. The dashed line is the same method "
        "on pooled data: where its curve ends on the line, nothing was lost by staying apart."
    )
    if plots.accuracies(results).max(initial=0.0) >= STRETCHED:
        words += " High accuracies are spread out: equal steps are equal factors of error."
    accuracy = figure(plots.accuracy_curves(results), words)
    coverage = figure(
        plots.class_coverage(results),
        "A class nobody has uploaded yet cannot be predicted, so accuracy can rise no faster than "
        "this staircase.",
    )
    lead = "Every client speaks once, in any order; the server can solve a model at any time."
    return section("As clients arrive", lead, accuracy, coverage)


def methods(results: Results) -> str:
    compared = card(
        methods_table(results),
        caption="The best of a column is shaded. Balanced: the mean over classes. Pooled: the same "
        "method on all data in one place. Personal: means over clients, weighted by their test "
        "samples, of the global head, of the head restricted to the client's own labels (OLL), "
        "with the client's label frequencies as a prior, and with a ridge regression of what that "
        "leaves unexplained of the client's samples. Ratio: formula over measured; above 1 the "
        "upload is smaller than the paper's.",
        wide=True,
    )
    cost = figure(
        plots.cost_accuracy(results),
        "Up is more accurate, left is cheaper: a method with another above and to its left "
        "is beaten on both.",
    )
    lead = "What each method achieves, and what a client pays for it in bytes, once."
    return section("Methods and their cost", lead, compared, cost, _uploads(results))


def _uploads(results: Results) -> str:
    name = head_title(main_head(results))
    return figure(
        plots.client_bytes(results),
        f"{name}: what the clients really sent, next to the paper's count of numbers at 4 bytes "
        "each; either curve is sorted by itself. The shaded gap is the difference.",
    )


def holdings(results: Results) -> str:
    partition = part(results, "partition")
    described = settings(part(partition, "settings"))
    facts = card(
        _facts(part(partition, "summary")),
        title=f"{partition.get('name') or ''} partition".strip().capitalize(),
        caption=f"Settings: {described}." if described else "",
    )
    drawing = figure(plots.client_classes(results), _heat(results))
    lead = "How unlike the clients are. A sum of statistics is the same for every split."
    return section("Who holds what", lead, drawing, facts)


def _facts(summary: Results) -> str:
    """Labels and their numbers; those of one quantity (x_mean, x_min …) on one line."""
    single: list[tuple[str, str]] = []
    spread: dict[str, dict[str, str]] = {}
    for label, value in summary.items():
        stem, _, kind = str(label).rpartition("_")
        if stem and kind in _SPREAD:
            spread.setdefault(stem.replace("_", " "), {})[kind] = plain(value)
        else:
            single.append((str(label).replace("_", " "), plain(value)))
    lines = [(stem, *(of.get(kind, MISSING) for kind in _SPREAD)) for stem, of in spread.items()]
    return table((), single) + table(("", *_SPREAD), lines)


def _heat(results: Results) -> str:
    """How to read the heat map, and what was gathered to fit it."""
    counts = rows(part(results, "heatmap"), "counts")
    clients = plots.group(len(counts), plots.COLUMNS)
    classes = plots.group(len(counts[0]) if counts else 0, plots.LINES)
    words = "A column is a client, a row a class; darker is more samples (log scale), white none."
    gathered = [
        f"{count} {what}"
        for count, what in ((clients, "clients"), (classes, "classes"))
        if count > 1
    ]
    if gathered:
        words += f" To fit, each cell adds up {' by '.join(gathered)}."
    return words


def ridge(results: Results) -> str:
    head = plots.path_head(results)
    path = part(head, "path")
    drawing = figure(
        plots.ridge_path(results),
        "Generalized cross-validation (above, lower is better) for every λ, and the degrees of "
        "freedom left to the model (below). Both come from the sums: no client is asked again.",
    )
    if not drawing:
        return ""
    facts = [
        ("Method", head_title(head)),
        ("λ of the lowest score", plain(path.get("best"))),
        ("λ used", plain(part(head, "solved").get("ridge"))),
        ("Lowest score", plain(_lowest(path)[0])),
        ("Degrees of freedom there", plain(_lowest(path)[1])),
        ("Dimension of the features", plain(part(results, "data").get("dimension"))),
    ]
    shown = [fact for fact in facts if fact[1] != MISSING]
    lead = "One eigendecomposition of the summed matrix scores every ridge at once."
    return section("The choice of λ", lead, drawing, card(table((), shown), title="At the choice"))


def _lowest(path: Results) -> tuple[float | None, float | None]:
    """The lowest score of the path and the degrees of freedom there."""
    pairs = zip(rows(path, "scores"), rows(path, "freedom"), strict=False)
    known = [(s, f) for s, f in pairs if number(s) is not None and number(f) is not None]
    return min(known) if known else (None, None)


def errors(results: Results) -> str:
    matrix = rows(part(results, "confusion"), "matrix")
    step = plots.group(len(matrix), plots.CELLS)
    words = (
        "A row is a true class and adds up to 100%; off the diagonal are errors, drawn darker "
        "than in proportion so that rare ones show."
    )
    if step > 1:
        words += f" To fit, each cell adds up {step} by {step} classes."
    worst = [
        (f"{pair.get('true')} → {pair.get('predicted')}", plain(pair.get("count")),
         percent(pair.get("share")))
        for pair in rows(results, "worst_pairs")
    ]  # fmt: skip
    confused = card(
        table(("True → predicted", "samples", "of the class"), worst),
        title="Most confused pairs",
        caption="Of the class: the share of the test samples of the true class.",
    )
    lead = f"Test samples by their true and predicted class, {head_title(main_head(results))}."
    return section("Where it errs", lead, figure(plots.confusion_matrix(results), words), confused)


def personal(results: Results) -> str:
    drawing = figure(
        plots.personal_accuracy(results),
        "Each curve sorts the clients by their own accuracy: the higher it runs, the fewer are "
        "left behind. A client with few test samples makes a coarse step.",
    )
    means = part(main_head(results), "personal")
    plain_means = part(main_head(results), "personal_mean")
    base = number(means.get("global"))
    lines = []
    for key, title in plots.PERSONAL.items():
        mean = number(means.get(key))
        gain = points(mean - base) if mean is not None and base is not None else MISSING
        lines.append((title, percent(mean), MISSING if key == "global" else gain,
                      percent(plain_means.get(key))))  # fmt: skip
    facts = card(
        table(("Head", "weighted mean", "gain", "plain mean"), lines) if base is not None else "",
        title="Means over clients",
        caption="Weighted: by the clients' test samples; plain: every client counts the same. "
        "Personal heads are made on the client, the first two from its label counts, the ridge "
        "from its samples; nothing is sent and no step is taken.",
    )
    lead = f"{head_title(main_head(results))}, made each client's own without another message."
    return section("Personal heads", lead, drawing, facts, _who_loses(results))


def _who_loses(results: Results) -> str:
    """Clients that gain and lose by each personal head, and by how much."""
    changes = part(main_head(results), "personal_change")
    lines = []
    for key, title in plots.PERSONAL.items():
        change = part(changes, key)
        if change:
            spread = [number(part(change, "quantiles").get(q)) for q in ("0", "0.1", "0.5", "0.9")]
            counted = [plain(change.get(count)) for count in ("gain", "same", "lose")]
            by = [MISSING if q is None else points(q).removesuffix(" points") for q in spread]
            lines.append((title, *counted, *by))
    head = ("Head", "gain", "same", "lose", "worst", "10%", "median", "90%")
    return card(
        table(head, lines) if lines else "",
        title="Who gains, who loses",
        caption="Clients against the global head, on their own test parts, and quantiles over "
        "clients of the difference in percentage points. A client with few test samples moves in "
        "large steps.",
        wide=True,
    )


def same_bits(results: Results) -> str:
    exact = part(results, "exact")
    if not exact:
        return ""
    same = bool(exact.get("same"))
    verdict, kind = ("✓ The same bits.", "good") if same else ("✗ Not the same bits.", "bad")
    told = (
        "The sum of the uploads and the statistic of pooled data are equal in every bit."
        if same
        else "The sum of the uploads differs from the statistic of pooled data: look into it "
        "before trusting that the split does not matter."
    )
    digests = "".join(
        f'<h3>{label}</h3><p class="digest">{text(exact.get(key) or MISSING)}</p>'
        for label, key in (
            ("Sum of the uploads", "federated_digest"),
            ("Pooled data", "pooled_digest"),
        )
    )
    body = f'{digests}<p><strong class="{kind}">{verdict}</strong> {text(told)}</p>'
    lead = (
        "In exact mode features are rounded to a public lattice and added as integers: no order "
        "and no split can change the total. These are SHA-256 digests of both totals."
    )
    return section("The same bits", lead, card(body, wide=True))


def reveals(results: Results) -> str:
    counted = part(results, "reveals")
    if not counted:
        return ""
    clients = number(counted.get("clients"))
    shown = [Tile(key.capitalize(), plain(value), _of(key, value, clients))
             for key, value in ((str(key), value) for key, value in counted.items())]  # fmt: skip
    told = paragraphs(
        "Statistics are not anonymous. A sum over few samples is nearly those samples. Without "
        "secure sums the server can reconstruct features of small clients: from one sample, the "
        "feature itself; from fewer samples than dimensions, the exact space that the client's "
        "features span; from a class with one sample, that sample's feature. Whoever can invert "
        "the feature extractor may then recover something like the images. Class counts are told "
        "outright.",
        "Secure sums hide a client only within its group, and not for classes that it alone "
        "holds: their sums are its own, whoever else is in the group. The finished model reveals "
        "something too, to everybody who has it; only differential privacy bounds how much.",
    )
    lead = "Raw data stays with the clients, but what they send speaks of it. In this run:"
    return section(
        "What these statistics reveal",
        lead,
        f'<div class="wide">{tiles(shown)}</div>',
        card(told, wide=True),
    )


def _of(key: str, value: object, clients: float | None) -> str:
    found = number(value)
    if key == "clients" or found is None or not clients:
        return "in this run" if key == "clients" else ""
    return f"{percent(found / clients, 0)} of clients"


def run(results: Results) -> str:
    """What was run, so that it can be run again."""
    lines = [
        (head_title(head), settings(part(head, "settings")) or "no settings",
         settings(part(head, "solved")) or MISSING)
        for head in rows(results, "heads")
    ]  # fmt: skip
    body = "".join(
        f'<tr><th scope="row">{text(title)}</th><td class="name"><code>{text(given, 1000)}</code>'
        f'</td><td class="name"><code>{text(solved, 1000)}</code></td></tr>'
        for title, given, solved in lines
    )
    if not body:
        return ""
    head = "".join(f'<th scope="col">{label}</th>' for label in ("Method", "settings", "solved"))
    shown = (
        f'<div class="scroll"><table class="settings"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
    lead = "The settings of each method, and what it chose itself when it was solved."
    return section("How it was run", lead, card(shown, wide=True))


ALL = (arrival, methods, holdings, ridge, errors, personal, same_bits, reveals, run)
