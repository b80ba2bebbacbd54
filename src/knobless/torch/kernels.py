"""The loop over bits as Triton kernels: samples are drawn where they are used, and never stored.

A word of the stream is two uniforms, those of an even and of the next odd column. Each kernel
computes the words that it needs, so the gradient pass draws the samples of the evaluation again.
Trials are along the last dimension of the grid. Kernels of one program per trial have everything
that is one number per trial. `constants` has ε, the margin, α, λ_min, λ_max, the dimension and the
target: numbers that are passed directly would be rounded to single precision.
"""

from __future__ import annotations

from importlib.util import find_spec

HAS_TRITON = find_spec("triton") is not None  # a CPU does not need it

if HAS_TRITON:
    import triton
    import triton.language as tl

    NEVER = tl.constexpr(2**62)  # an index that no row has
    SPEND_FIXED = tl.constexpr(0)  # constants that select an adaptation
    SPEND_SAMPLES = tl.constexpr(1)
    SPEND_STEPS = tl.constexpr(2)

    @triton.jit
    def uniform_pair(z):
        """Return the words of SplitMix64 as two 32-bit uniforms."""
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB
        z = z ^ (z >> 31)
        return z.to(tl.uint32), (z >> 32).to(tl.uint32)

    @triton.jit
    def counter(key, row, half):
        """Return the state of the generator before the first word of a row."""
        return (
            key.to(tl.uint64) + (row * half).to(tl.uint64) * 0x9E3779B97F4A7C15
        )

    @triton.jit
    def thresholds_at(thresholds, column, n):
        """Return the thresholds of some columns.

        0, below which there is no uniform, beyond the last.
        """
        return tl.load(thresholds + column, mask=column < n, other=0).to(
            tl.uint32, bitcast=True
        )

    @triton.jit
    def sum_kernel(
        key, drawn, lam, thresholds, weights, out, n, half, rows, UNIT: tl.constexpr, ROWS:
        tl.constexpr, WORDS: tl.constexpr, BLOCKS: tl.constexpr,
    ):  # fmt: skip
        """Draw points and sum their bits with weights.

        out[trial, tile, row] is the sum of a tile of WORDS·BLOCKS words.
        """
        tile = tl.program_id(1)
        trial = tl.program_id(2).to(tl.int64)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        if tl.program_id(0) * ROWS < tl.load(lam + trial):
            base = counter(
                tl.load(key + trial), tl.load(drawn + trial) + row, half
            )[:, None]
            word = tile * (WORDS * BLOCKS) + tl.arange(0, WORDS)
            total = tl.zeros((ROWS, WORDS), tl.int32 if UNIT else tl.float64)
            for _ in range(BLOCKS):
                low, high = uniform_pair(
                    base
                    + ((word + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)[None, :]
                )
                even = thresholds_at(thresholds + trial * n, 2 * word, n)[
                    None, :
                ]
                odd = thresholds_at(thresholds + trial * n, 2 * word + 1, n)[
                    None, :
                ]
                if UNIT:
                    total += (low < even).to(tl.int32) + (high < odd).to(
                        tl.int32
                    )
                else:
                    first = tl.load(
                        weights + 2 * word, mask=2 * word < n, other=0.0
                    )[None, :]
                    second = tl.load(
                        weights + 2 * word + 1, mask=2 * word + 1 < n, other=0.0
                    )[None, :]
                    total += tl.where(low < even, first, 0.0) + tl.where(
                        high < odd, second, 0.0
                    )
                word += WORDS
            place = (trial * tl.num_programs(1) + tile) * rows + row
            tl.store(out + place, tl.sum(total, 1), mask=row < rows)

    @triton.jit
    def draw_kernel(
        key,
        drawn,
        thresholds,
        out,
        n,
        half,
        first_row,
        rows,
        start,
        stop,
        ROWS: tl.constexpr,
        WORDS: tl.constexpr,
    ):
        """Draw the columns `start` to `stop` of some points: out[trial, row, column]."""
        trial = tl.program_id(2).to(tl.int64)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        word = start // 2 + tl.program_id(1) * WORDS + tl.arange(0, WORDS)
        base = counter(
            tl.load(key + trial), tl.load(drawn + trial) + first_row + row, half
        )[:, None]
        low, high = uniform_pair(
            base + ((word + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)[None, :]
        )
        even = thresholds_at(thresholds + trial * n, 2 * word, n)[None, :]
        odd = thresholds_at(thresholds + trial * n, 2 * word + 1, n)[None, :]
        column = (2 * word)[None, :]
        place = (
            out
            + (trial * rows + row[:, None]).to(tl.int64) * (stop - start)
            + column
            - start
        )
        inside = row[:, None] < rows
        tl.store(
            place,
            (low < even).to(tl.int8),
            mask=inside & (column >= start) & (column < stop),
        )
        tl.store(
            place + 1,
            (high < odd).to(tl.int8),
            mask=inside & (column + 1 >= start) & (column + 1 < stop),
        )

    @triton.jit
    def weight_kernel(
        f,
        lam,
        share,
        rows,
        mu,
        TRUNCATION: tl.constexpr,
        ROWS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Lines 4 to 6: the weights over λ by rank, shared by ties; ranks are counted."""
        trial = tl.program_id(1).to(tl.int64)
        count = tl.minimum(tl.load(lam + trial).to(tl.int32), rows)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        value = tl.load(
            f + trial * rows + row, mask=row < count, other=float("inf")
        )
        value = tl.where(value == value, value, float("inf"))
        first = tl.zeros((ROWS,), tl.int32)
        last = tl.zeros((ROWS,), tl.int32)
        for start in range(0, count, BLOCK):
            partners = start + tl.arange(0, BLOCK)
            theirs = tl.load(
                f + trial * rows + partners,
                mask=partners < count,
                other=float("inf"),
            )
            theirs = tl.where(theirs == theirs, theirs, float("inf"))
            valid = (partners < count)[None, :]
            first += tl.sum(
                (valid & (theirs[None, :] < value[:, None])).to(tl.int32), 1
            )
            last += tl.sum(
                (valid & (theirs[None, :] <= value[:, None])).to(tl.int32), 1
            )
        if not TRUNCATION:
            mu = (count + 3) // 4
        counts = tl.minimum(last, mu) - tl.minimum(first, mu)
        if not TRUNCATION:
            counts -= tl.maximum(last - count + mu, 0) - tl.maximum(
                first - count + mu, 0
            )
        unit = count.to(tl.float64) / mu
        ties = tl.maximum(last - first, 1)
        w = (
            unit
            * counts.to(tl.float64)
            / ties.to(tl.float64)
            / count.to(tl.float64)
        )
        tl.store(
            share + trial * rows + row,
            tl.where(row < count, w, 0.0),
            mask=row < rows,
        )

    @triton.jit
    def account_kernel(
        f, share, chosen, weight, lam, lam_r, status, nit, nfev, failures, improved_at, best,
        flags, numbers, constants, rows, budget, max_failures, SPEND: tl.constexpr, BLOCK:
        tl.constexpr,
    ):  # fmt: skip
        """Apply the stopping rules, count, and prepare the update.

        `flags` and `numbers` are for the next kernels; `chosen` and `weight` get the points with a
        weight other than 0.
        """
        trial = tl.program_id(0).to(tl.int64)
        count = tl.load(lam + trial)
        before = tl.load(nfev + trial)
        why = tl.load(status + trial)
        running = why == 0
        left = budget - before
        taken = tl.where(running, tl.minimum(count, left), 0)
        target = tl.load(constants + 6)
        hit = tl.full((), NEVER, tl.int64)
        for start in range(0, taken, BLOCK):
            place = start + tl.arange(0, BLOCK)
            value = tl.load(
                f + trial * rows + place, mask=place < taken, other=float("inf")
            )
            hit = tl.minimum(
                hit,
                tl.min(tl.where(value <= target, place.to(tl.int64), NEVER)),
            )
        why = tl.where(running & (hit < taken), 1, why)
        taken = tl.minimum(taken, hit + 1)
        lowest = tl.full((), float("inf"), tl.float64)
        where = tl.zeros((), tl.int64)
        failed = tl.zeros((), tl.int64)
        for start in range(0, taken, BLOCK):
            place = start + tl.arange(0, BLOCK)
            value = tl.load(
                f + trial * rows + place, mask=place < taken, other=float("inf")
            )
            failed += tl.sum((value != value).to(tl.int64))
            value = tl.where(value == value, value, float("inf"))
            lowest_value = tl.min(value)
            at = tl.min(
                tl.where(value == lowest_value, place.to(tl.int64), NEVER)
            )
            where = tl.where(lowest_value < lowest, at, where)
            lowest = tl.minimum(lowest_value, lowest)
        closing = running & (taken == count)
        total = tl.zeros((), tl.float64)
        squares = tl.zeros((), tl.float64)
        n_informative = tl.zeros((), tl.int32)
        n_weighted = tl.zeros((), tl.int32)
        first = tl.load(share + trial * rows)
        count = tl.minimum(count, rows)
        for start in range(0, count, BLOCK):
            place = start + tl.arange(0, BLOCK)
            w = tl.load(
                share + trial * rows + place, mask=place < count, other=0.0
            )
            total += tl.sum(w)
            squares += tl.sum(w * w)
            n_informative += tl.sum(
                ((w != first) & (place < count)).to(tl.int32)
            )
            weighted = (w != 0.0).to(tl.int32)
            to = trial * rows + n_weighted + tl.cumsum(weighted, 0) - 1
            tl.store(chosen + to, place.to(tl.int64), mask=weighted != 0)
            tl.store(weight + to, w, mask=weighted != 0)
            n_weighted += tl.sum(weighted)
        improved = lowest < tl.load(best + trial)
        after = before + taken
        failed += tl.load(failures + trial)
        why = tl.where(running & (why == 0) & (taken >= left), 3, why)
        why = tl.where(
            running & (failed == after) & (after >= max_failures), 4, why
        )
        active = closing & (n_informative > 0)
        step = tl.load(constants)
        if SPEND == SPEND_STEPS:
            step = step * (tl.load(constants + 3) / tl.load(lam_r + trial))
        noise = tl.sqrt(tl.where(active, tl.load(constants + 5) * squares, 1.0))
        tl.store(status + trial, why)
        tl.store(nit + trial, tl.load(nit + trial) + closing.to(tl.int64))
        tl.store(nfev + trial, after)
        tl.store(failures + trial, failed)
        tl.store(improved_at + trial, before + where + 1, mask=improved)
        tl.store(best + trial, lowest, mask=improved)
        tl.store(flags + 5 * trial, active.to(tl.int64))
        tl.store(flags + 5 * trial + 1, closing.to(tl.int64))
        tl.store(flags + 5 * trial + 2, improved.to(tl.int64))
        tl.store(flags + 5 * trial + 3, where)
        tl.store(flags + 5 * trial + 4, n_weighted.to(tl.int64))
        tl.store(numbers + 3 * trial, total)
        tl.store(numbers + 3 * trial + 1, step)
        tl.store(numbers + 3 * trial + 2, tl.sqrt(step * (2.0 - step)) / noise)

    @triton.jit
    def moved(
        theta,
        s,
        gradient,
        inside,
        total,
        step,
        scale,
        margin,
        SIGNAL: tl.constexpr,
    ):
        """Lines 10 to 12 for some columns: the next θ, and the next s."""
        gradient -= total * theta
        if SIGNAL:
            z = gradient / tl.sqrt(tl.where(inside, theta * (1.0 - theta), 1.0))
            s = tl.where(inside, (1.0 - step) * s + scale * z, 0.0)
        return tl.minimum(
            tl.maximum(theta + step * gradient, margin), 1.0 - margin
        ), s

    @triton.jit
    def weighted(
        stream,
        begin,
        chosen,
        weight,
        count,
        first,
        second,
        offset,
        half,
        ROWS: tl.constexpr,
        WORDS: tl.constexpr,
    ):
        """Return the weighted sums of the even and of the odd columns of the chosen points."""
        left = tl.zeros((ROWS, WORDS), tl.float64)
        right = tl.zeros((ROWS, WORDS), tl.float64)
        for start in range(0, count, ROWS):
            row = start + tl.arange(0, ROWS)
            w = tl.load(weight + row, mask=row < count, other=0.0)[:, None]
            base = counter(
                stream,
                begin + tl.load(chosen + row, mask=row < count, other=0),
                half,
            )[:, None]
            low, high = uniform_pair(base + offset[None, :])
            left += tl.where(low < first[None, :], w, 0.0)
            right += tl.where(high < second[None, :], w, 0.0)
        return tl.sum(left, 0), tl.sum(right, 0)

    @triton.jit
    def update_kernel(
        key, drawn, thresholds, chosen, weight, theta, s, squares, best_x, flags, numbers,
        constants, n, half, rows, SIGNAL: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
    ):  # fmt: skip
        """Lines 10 to 12 for a tile of columns.

        Points with a weight are drawn again and summed, then θ and s move.
        """
        trial = tl.program_id(1).to(tl.int64)
        word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
        even = 2 * word
        odd = 2 * word + 1
        offset = (word + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
        first = thresholds_at(thresholds + trial * n, even, n)
        second = thresholds_at(thresholds + trial * n, odd, n)
        stream = tl.load(key + trial)
        begin = tl.load(drawn + trial)
        if tl.load(flags + 5 * trial + 2) != 0:  # a new best point
            low, high = uniform_pair(
                counter(stream, begin + tl.load(flags + 5 * trial + 3), half)
                + offset
            )
            tl.store(
                best_x + trial * n + even,
                (low < first).to(tl.int8),
                mask=even < n,
            )
            tl.store(
                best_x + trial * n + odd,
                (high < second).to(tl.int8),
                mask=odd < n,
            )
        if tl.load(flags + 5 * trial) != 0:
            count = tl.load(flags + 5 * trial + 4).to(tl.int32)
            base = trial * rows
            left, right = weighted(
                stream,
                begin,
                chosen + base,
                weight + base,
                count,
                first,
                second,
                offset,
                half,
                ROWS,
                WORDS,
            )
            total = tl.load(numbers + 3 * trial)
            step = tl.load(numbers + 3 * trial + 1)
            scale = tl.load(numbers + 3 * trial + 2)
            margin = tl.load(constants + 1)
            at_even = trial * n + even
            at_odd = trial * n + odd
            theta_0 = tl.load(theta + at_even, mask=even < n, other=0.5)
            theta_1 = tl.load(theta + at_odd, mask=odd < n, other=0.5)
            s_0 = tl.load(s + at_even, mask=even < n, other=0.0)
            s_1 = tl.load(s + at_odd, mask=odd < n, other=0.0)
            theta_0, s_0 = moved(
                theta_0, s_0, left, even < n, total, step, scale, margin, SIGNAL
            )
            theta_1, s_1 = moved(
                theta_1, s_1, right, odd < n, total, step, scale, margin, SIGNAL
            )
            tl.store(theta + at_even, theta_0, mask=even < n)
            tl.store(theta + at_odd, theta_1, mask=odd < n)
            tl.store(
                thresholds + at_even,
                (theta_0 * 4294967296.0).to(tl.int64).to(tl.int32),
                mask=even < n,
            )
            tl.store(
                thresholds + at_odd,
                (theta_1 * 4294967296.0).to(tl.int64).to(tl.int32),
                mask=odd < n,
            )
            if SIGNAL:
                tl.store(s + at_even, s_0, mask=even < n)
                tl.store(s + at_odd, s_1, mask=odd < n)
                tl.store(
                    squares + trial * tl.num_programs(0) + tl.program_id(0),
                    tl.sum(s_0 * s_0 + s_1 * s_1),
                )

    @triton.jit
    def adapt_kernel(
        drawn, lam, lam_r, gamma, squares, flags, numbers, constants, tiles, SPEND: tl.constexpr,
        BLOCK: tl.constexpr
    ):  # fmt: skip
        """Lines 13 to 15: γ, λ_r, and λ of the next iteration."""
        trial = tl.program_id(0).to(tl.int64)
        count = tl.load(lam + trial)
        tl.store(
            drawn + trial,
            tl.load(drawn + trial) + count * tl.load(flags + 5 * trial + 1),
        )
        if (SPEND != SPEND_FIXED) and (tl.load(flags + 5 * trial) != 0):
            length = tl.zeros((), tl.float64)
            for start in range(0, tiles, BLOCK):
                tile = start + tl.arange(0, BLOCK)
                length += tl.sum(
                    tl.load(
                        squares + trial * tiles + tile,
                        mask=tile < tiles,
                        other=0.0,
                    )
                )
            beta = tl.load(numbers + 3 * trial + 1)
            expected = (1.0 - beta) * (1.0 - beta) * tl.load(
                gamma + trial
            ) + beta * (2.0 - beta)
            grown = tl.load(lam_r + trial) * tl.exp(
                beta * (expected - length / tl.load(constants + 2))
            )
            grown = tl.minimum(
                tl.maximum(grown, tl.load(constants + 3)),
                tl.load(constants + 4),
            )
            tl.store(gamma + trial, expected)
            tl.store(lam_r + trial, grown)
            if SPEND == SPEND_SAMPLES:
                near = tl.floor(grown + 0.5)
                whole = near.to(tl.int64)
                # Halves to even
                whole = tl.where(
                    (near - grown == 0.5) & (whole % 2 == 1), whole - 1, whole
                )
                tl.store(lam + trial, whole)
