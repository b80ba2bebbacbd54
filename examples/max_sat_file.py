"""Read and solve a MAX-SAT file, compiled if numba is installed, and check the solution.

The equivalent command is `knobless solve dinner.cnf --budget 10000`. It prints:

    0 of 7 wishes unmet
    invited: Ada, Kurt
"""

from pathlib import Path

import knobless as kl
from knobless.problems import MaxSat

GUESTS = ("Ada", "Alan", "Emmy", "Kurt", "Sofia")
Path("dinner.cnf").write_text("""c who comes to dinner, 1 to 5
p cnf 5 7
1 2 0
-1 -2 0
3 4 5 0
-3 2 0
-4 -5 0
-5 3 0
-2 5 0
""")

problem = MaxSat.read("dinner.cnf")
result = kl.minimize(problem, problem.space, budget=10_000, target=0, rng=0)

print(f"{result.fun:.0f} of {len(problem.clauses)} wishes unmet")
print("invited:", ", ".join(name for name, comes in zip(GUESTS, result.x, strict=True) if comes))
for clause in problem.clauses:
    assert any((literal > 0) == result.x[abs(literal) - 1] for literal in clause)
