"""Side-by-side measurements, as ratios within one run."""
