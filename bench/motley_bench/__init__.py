"""Load generator and micro-benchmarks; every figure is printed beside its roof and as JSON on the last line."""
