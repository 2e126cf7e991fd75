"""Figures: medians with their spread, tables for people, lines for programs, single measurements as CSV."""

import csv
import statistics


class Spread:
    """Median, least and greatest of some measurements."""

    def __init__(self, values):
        values = list(values)
        self.median = statistics.median(values)
        self.min = min(values)
        self.max = max(values)

    def __str__(self):
        return f"{self.median:.2f} ({self.min:.2f}..{self.max:.2f})"


def ratios(numerators, denominators):
    """Spread of the ratios of measurements that were taken side by side: round by round, never median by median."""
    return Spread(a / b for a, b in zip(numerators, denominators, strict=True))


def table(header, rows):
    """Lines of a table: first column left, others right."""
    cells = [header] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first = row[0].ljust(widths[0])
        lines.append("  ".join([first] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


class Report:
    """Collects the lines for programs, which are printed behind all tables, and writes the CSV file."""

    def __init__(self, csv_path=None):
        self._lines = []
        self._file = open(csv_path, "a", newline="", encoding="utf-8") if csv_path else None
        self._csv = csv.writer(self._file) if self._file else None
        if self._file and self._file.tell() == 0:
            self._csv.writerow(["bench", "row", "subject", "workers", "repeat", "value", "unit"])

    def ratio(self, bench, row, column, spread):
        self._lines.append(f"RATIO {bench} {row} {column} {spread.median:.4f} {spread.min:.4f} {spread.max:.4f}")

    def value(self, bench, row, column, value, unit):
        self._lines.append(f"VALUE {bench} {row} {column} {value:.6g} {unit}")

    def sample(self, bench, row, subject, workers, repeat, value, unit):
        if self._csv:
            self._csv.writerow([bench, row, subject, workers, repeat, value, unit])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for line in self._lines:
            print(line)
        if self._file:
            self._file.close()
