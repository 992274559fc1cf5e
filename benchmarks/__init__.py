"""Speed and size of the exporter against their targets: `python -m benchmarks` prints one JSON line per measurement."""
