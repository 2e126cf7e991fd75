"""What bench/run prints for programs and how it takes ratios: the lines other programs parse."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from support import figures, registry  # noqa: E402  (the path is set above)


class Figures(unittest.TestCase):
    def test_ratio_is_taken_round_by_round(self):
        # Median by median this would be 2/1; the neighbours in time never were that far apart.
        spread = figures.ratios([1, 2, 30], [1, 1, 20])
        self.assertEqual((spread.min, spread.median, spread.max), (1.0, 1.5, 2.0))

    def test_ratio_of_unequal_counts_is_refused(self):
        with self.assertRaises(ValueError):
            figures.ratios([1, 2], [1])

    def test_lines_for_programs_come_last_and_have_their_form(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), figures.Report() as report:
            report.ratio("vmalloc", "total", "lazy/early@1", figures.Spread([1.0, 1.25, 1.5]))
            report.value("vmalloc", "fix_size_alloc_test", "retained_extra_ns", 61.5, "ns")
            print("the table")
        self.assertEqual(out.getvalue().splitlines(), [
            "the table",
            "RATIO vmalloc total lazy/early@1 1.2500 1.0000 1.5000",
            "VALUE vmalloc fix_size_alloc_test retained_extra_ns 61.5 ns",
        ])

    def test_csv_gets_a_head_once_and_every_sample(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "samples.csv"
            for repeat in range(2):
                with contextlib.redirect_stdout(io.StringIO()), figures.Report(path) as report:
                    report.sample("vmalloc", "total", "off", 1, repeat, 12, "ns")
            self.assertEqual(path.read_text().splitlines(), [
                "bench,row,subject,workers,repeat,value,unit",
                "vmalloc,total,off,1,0,12,ns",
                "vmalloc,total,off,1,1,12,ns",
            ])

    def test_table_aligns_its_columns(self):
        self.assertEqual(figures.table(["a", "bb"], [["long", 1]]), "a     bb\n--------\nlong   1")


class Registry(unittest.TestCase):
    def test_two_benchmarks_of_one_name_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("one", "two"):
                (pathlib.Path(folder) / name).mkdir()
                (pathlib.Path(folder) / name / "bench.py").write_text(
                    "from support import google_benchmark\n"
                    "BENCHES = [google_benchmark.bench('same', 'text', 'program')]\n")
            with self.assertRaises(registry.BenchError):
                registry.discover(pathlib.Path(folder))

    def test_the_projects_own_benchmarks_are_found(self):
        for name, bench in registry.discover(ROOT / "bench").items():
            self.assertEqual(name, bench.name)
            self.assertTrue(bench.targets)


if __name__ == "__main__":
    unittest.main()
