"""Plant faults by rule, one at a time, and see which the tests notice: `lua.py` in the scripts, `python.py` elsewhere.

Each is a program: `python -m tools.mutants.lua [--sample N] [--seed S]`. A sample is drawn anew for each seed. What
survives is printed with its place, and equivalent ones are listed manually, with the reason, beside the program.
"""
