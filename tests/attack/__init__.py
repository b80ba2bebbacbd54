"""Randomized attacks on the guarantees of the library: reproducible cases, each identified by an attack and a seed.

    python tests/attack [--minutes 2] [--seed 0] [--cases 100] [--jobs 2] [--only differential,fuzzer]
    python tests/attack --only fuzzer --case 17        # rerun one case and print what differed

An attack is a function of a seed and an empty folder. It returns the differences that it found as lines of text; an
empty list means that every guarantee held.

differential  the same run, evaluated in other ways or stopped and resumed, must have the same result
compiled      a compiled objective and the same objective in Python must have the same result
fuzzer        ask, tell and the rest in random order, against a twin that gets the same values in a canonical order
kill          a run that is killed at random moments and resumed, see `tests/attack/crash.py`
hostile       damaged and malicious journals and snapshots: each opens or fails with the library's own error
races         two threads, a forked process, and a second process that write to one file
"""
