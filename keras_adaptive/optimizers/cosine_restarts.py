import numbers

import keras
import numpy as np
from keras import ops

from keras_adaptive.typing import Tensor

LAST_UPDATE = 2**31 - 1
COUNT = "{} must be an integer of at least {}, a number of updates"


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CosineRestarts(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate schedule with a linear warm-up, followed by cosine annealing with restarts.

    `t` is the number of updates already done, so the first update has `t = 0`. During the warm-up

        rate(t) = warmup_rate + t * (max_rate - warmup_rate) / warmup

    and after it, `c` updates into cycle `i` (0, 1, ...), which has `T = period * period_mult ** i` updates,

        rate(t) = shrink ** i * (min_rate + (max_rate - min_rate) * (1 + cos(pi * c / T)) / 2)

    The highest and the lowest rate shrink from cycle to cycle. The first update of a cycle has its highest rate. The
    bounds of the cycles are compared as integers, because logarithms round to the wrong side of some restarts.

    The rate of an integer or of a NumPy array is computed in float64, the rate of a tensor in float32.

    Args:
        max_rate: Rate at the end of the warm-up and at the start of the first cycle.
        period: Number of updates in the first cycle, an integer.
        min_rate: Rate that the first cycle approaches at its end.
        warmup: Number of updates before the first cycle, an integer.
        warmup_rate: Rate of the first update of the warm-up.
        period_mult: Ratio of the lengths of one cycle and the cycle before it, at least 1.
        shrink: Factor on all rates from one cycle to the next, above 0 and at most 1.

    Raises:
        ValueError: If an argument is outside its range.

    Reference:
        Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017, section 3; with the
        warm-up and the shrinking of Baevski and Auli, Adaptive Input Representations for Neural Language Modeling,
        ICLR 2019, section 4.5.

    Example:

    ```python
    schedule = CosineRestarts(1.0, 18_000, min_rate=1e-5, warmup=16_000, period_mult=2, shrink=0.75)
    schedule(16_000)  # 1.0
    schedule(34_000)  # 0.75, the first restart
    optimizer = NAG(schedule)
    ```
    """

    def __init__(
        self,
        max_rate: float,
        period: int,
        *,
        min_rate: float = 0.0,
        warmup: int = 0,
        warmup_rate: float = 1e-7,
        period_mult: float = 1,
        shrink: float = 1.0,
    ) -> None:
        self.max_rate = max_rate
        self.period = period
        self.min_rate = min_rate
        self.warmup = warmup
        self.warmup_rate = warmup_rate
        self.period_mult = period_mult
        self.shrink = shrink
        self._check()
        self._starts, self._lengths = self._cycles()

    def _check(self):
        require(self.max_rate > 0, "`max_rate` must be positive", max_rate=self.max_rate)
        rates = {"min_rate": self.min_rate, "max_rate": self.max_rate}
        require(0 <= self.min_rate <= self.max_rate, "`min_rate` must be between 0 and `max_rate`", **rates)
        require(self.warmup_rate >= 0, "`warmup_rate` must not be negative", warmup_rate=self.warmup_rate)
        require(is_count(self.period) and self.period > 0, COUNT.format("`period`", 1), period=self.period)
        require(is_count(self.warmup), COUNT.format("`warmup`", 0), warmup=self.warmup)
        require(self.period_mult >= 1, "`period_mult` must be at least 1", period_mult=self.period_mult)
        require(0 < self.shrink <= 1, "`shrink` must be above 0 and at most 1", shrink=self.shrink)

    def _cycles(self):
        """Returns the start and the length of every cycle that a 32-bit number of updates can reach."""
        starts, lengths = [0], [self.period]
        while self.period_mult > 1 and starts[-1] + lengths[-1] <= LAST_UPDATE:
            starts.append(starts[-1] + lengths[-1])
            lengths.append(lengths[-1] * self.period_mult)
        return np.asarray(starts), np.asarray(lengths)

    def __call__(self, step: int | np.ndarray | Tensor) -> float | np.ndarray | Tensor:
        if isinstance(step, (numbers.Integral, np.ndarray)):
            rate = self._rate(np.asarray(step), np)
            return rate if rate.ndim else float(rate)
        return self._rate(ops.cast(step, "int32"), ops)

    def _rate(self, step, xp):
        slope = (self.max_rate - self.warmup_rate) / max(self.warmup, 1)
        during_warmup = xp.add(self.warmup_rate, xp.multiply(slope, step))
        cycle, fraction = self._position(xp.maximum(step - self.warmup, 0), xp)
        # (1 + cos(x)) / 2 is computed as a square, which is accurate in float32 where the rate is close to its minimum.
        wave = xp.square(xp.cos(np.pi / 2 * fraction))
        annealed = self.min_rate + (self.max_rate - self.min_rate) * wave
        return xp.where(step < self.warmup, during_warmup, xp.power(self.shrink, cycle) * annealed)

    def _position(self, count, xp):
        """Returns the number of the cycle that `count` is in, and the fraction of that cycle already done."""
        if self.period_mult == 1:
            return xp.floor_divide(count, self.period), xp.divide(xp.mod(count, self.period), self.period)
        dtype = "float64" if xp is np else "float32"
        first_counts = np.ceil(self._starts[1:]).astype("int32")
        cycle = xp.sum(xp.greater_equal(xp.expand_dims(count, -1), first_counts), axis=-1)
        done = xp.subtract(count, xp.take(self._starts.astype(dtype), cycle))
        return cycle, done / xp.take(self._lengths.astype(dtype), cycle)

    def get_config(self) -> dict:
        names = ("max_rate", "period", "min_rate", "warmup", "warmup_rate", "period_mult", "shrink")
        return {name: getattr(self, name) for name in names}


def is_count(value):
    return isinstance(value, numbers.Integral) and value >= 0


def require(condition, message, **received):
    if not condition:
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"{message}. Received: {values}.")
