"""What a notebook shows of verdicts, of derivatives and of power: a table of each, by the package `table`.

A Verdict has a row for each port, several have one for each Pair, and the worst come first to the eye by their color:

    cap.verify()            # name       verdict              ports  detail
                            # Sequential bitwise, derivative  5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backprint.graph.verdicts import Derivative, Power, Verdict, proved_ports
from backprint.table.notebook import html_of
from backprint.table.nouns import Report, Table


def html_of_verdict(verdict: Verdict) -> str:
    """Return what a notebook shows of a Verdict: its word, what it says of itself, and a row for each port."""
    columns = {"port": "name", "verdict": "word", "detail": "text", "power": "number", "compared_with": "text"}
    rows = [(str(port.key), port.verdict, port.detail, port.power, port.witness) for port in verdict.ports]
    report = Report(title=verdict.name, answer=_word_of(verdict), tables=(), rows=Table("", columns, rows))
    return html_of(report, list(_said_of(verdict)))


def html_of_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return what a notebook shows of the Verdicts of a Capture: of one its ports, of several a row for each Pair."""
    if len(verdicts) == 1:
        return html_of_verdict(verdicts[0])
    columns = {"name": "name", "verdict": "word", "ports": "count", "power": "number", "detail": "text"}
    rows = [(row.name, _word_of(row), len(row.ports), row.power, "; ".join(_said_of(row))) for row in verdicts]
    answer = "" if rows else "no verdicts"
    return html_of(Report(title="", answer=answer, tables=(), rows=Table("", columns, rows)))


def _word_of(verdict: Verdict) -> str:
    """Return the words of a Verdict: its own, and that of its Derivative."""
    return ", ".join((verdict.verdict, *((verdict.derivative.word,) if verdict.derivative is not None else ())))


def _said_of(verdict: Verdict) -> Iterator[str]:
    """Yield what a Verdict says besides its words, a line each."""
    if verdict.vacuous:
        yield proved_ports(len(verdict.ports) or len(verdict.vacuous), verdict.vacuous)
    yield from filter(None, (verdict.nonfinite, verdict.detail))
    if verdict.derivative is not None and not verdict.derivative.good:
        yield from _said_of_derivative(verdict.derivative)


def html_of_derivatives(derivatives: Sequence[Derivative]) -> str:
    """Return what a notebook shows of Derivatives: a row for each, with the places where the backward is wrong."""
    columns = {"name": "name", "derivative": "word", "gap": "number", "draws": "count", "detail": "text"}
    rows = [(row.name, row.word, row.gap, row.draws, row.detail) for row in derivatives]
    lines = [line for row in derivatives for line in map(str, row.wrong)]
    answer = "" if rows else "no derivatives"
    return html_of(Report(title="", answer=answer, tables=(), rows=Table("", columns, rows)), lines)


def _said_of_derivative(derivative: Derivative) -> Iterator[str]:
    """Yield why a Derivative is not good, a line each."""
    yield from filter(None, (derivative.detail, *map(str, derivative.wrong)))


def html_of_power(power: Power) -> str:
    """Return what a notebook shows of a Power: how far each port moved, and each redraw with the port that moved
    least."""
    ports = Table("How far each port moves", {"port": "name", "tolerances": "number", "why": "text"}, _port_rows(power))
    columns = {"redraw": "name", "moved_least": "name", "tolerances": "number", "untried": "text"}
    # `weakest` is a port and how far it moved: an empty name and an empty cell where none was measured.
    rows = [(trial.name, *(trial.weakest or ("", None)), trial.untried) for trial in power.trials]
    without = len(power.vacuous)
    answer = "no port was measured" if not power.most else f"{without} of {len(power.most)} ports without power"
    return html_of(Report("Power", answer, tables=(ports,), rows=Table("Redraws", columns, rows)))


def _port_rows(power: Power) -> list[tuple[str, float, str]]:
    """Return a row for each port: how far it moved, and why nothing moves it."""
    why = dict(power.why)
    return [(port, by, why.get(port, "")) for port, by in sorted(power.most, key=lambda row: row[1])]
