"""The only code that reads the outside world, one file a source. Each answers a `Reading` and never raises."""
