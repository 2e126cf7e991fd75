"""What the benchmarks of this project share: building, finding each other, figures, asking subjects."""
