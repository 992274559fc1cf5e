"""The simulated MPS control daemon: front-end, daemon, both protocols, and the world around it.

`frontend` is what every call of the executable loads, so it imports next to nothing. `daemon` is the process that it
talks to; `protocol2` and `protocol3` are what that process knows; `world` is the file that says what it can't know.
"""
