"""The algorithms that are compared, by the names they have in tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from knobless.core.adaptation import SNR
from knobless.core.families import Bernoulli
from knobless.core.igo import IGO
from knobless.recipes import cga, pbil_epsilon, pbil_lambda


def pbil_lambda_with(n: int, eps: float | None = None, alpha: float = 1.5, lam_max: float | None = None) -> IGO:
    """PBIL-λ with some of its parameters changed."""
    adaptation = SNR(
        eps=n**-0.5 if eps is None else eps, lam_max=max(n, 2) if lam_max is None else lam_max, alpha=alpha
    )
    return replace(pbil_lambda(Bernoulli(n)), adaptation=adaptation)


LAMBDA, EPSILON, LAMBDA_1 = "PBIL-λ n^-½", "PBIL-ε n^-½", "PBIL-λ 1/n"
CGA_1, CGA_HALF, CGA_3_4 = "cGA 1/n", "cGA n^-½", "cGA n^-¾"
LAMBDA_FREE = "PBIL-λ n^-½, λ_max = ∞"

ALGORITHMS: dict[str, Callable[[int], IGO]] = {
    LAMBDA: lambda n: pbil_lambda(Bernoulli(n)),
    EPSILON: lambda n: pbil_epsilon(Bernoulli(n)),
    LAMBDA_1: lambda n: pbil_lambda_with(n, eps=1.0 / n),
    CGA_1: lambda n: cga(Bernoulli(n)),
    CGA_HALF: lambda n: cga(Bernoulli(n), eps=n**-0.5),
    CGA_3_4: lambda n: cga(Bernoulli(n), eps=n**-0.75),
    LAMBDA_FREE: lambda n: pbil_lambda_with(n, lam_max=float("inf")),
}

COLORS = {
    LAMBDA: "#d62728",
    EPSILON: "#ff7f0e",
    LAMBDA_1: "#9467bd",
    CGA_1: "#1f77b4",
    CGA_HALF: "#2ca02c",
    CGA_3_4: "#17becf",
    LAMBDA_FREE: "#8c564b",
}
