"""The only code of the enforcer that changes the world: one module for each thing that it changes.

Each mechanism takes an action and answers what became of it. It says `Done` only of what it read back afterwards.
"""
