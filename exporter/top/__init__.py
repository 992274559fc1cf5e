"""`podgpu top`: who holds what, live, on a terminal. It knows only the metrics page, like any other reader of it."""
