# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A figure of my own
#
# Methods on the same splits, with seeds; one of them is yours, and the figure goes into a paper. Fine-tuning needs the
# extra `torch`; in a clone: `pip install -c constraints.txt ".[torch]"`.
#
# ## The question
#
# Does a head that begins in closed form save rounds? Four pipelines, written as papers write them: ψ is the head, and
# `none` begins with random rows.

# %%
# %matplotlib inline
import headstart as hs

# %% [markdown]
# ## A method of one's own
#
# A training method is what it changes of FedAvg. This one takes a larger step along the clients' mean update, as long as it says
# so. In a file of its own it would be given to any command with `--plugin bold.py`; here the decorator is enough.

# %%
from dataclasses import dataclass


@dataclass(frozen=True)
class Larger:
    """θ ← θ + s · mean δ."""

    step_size: float

    def start(self, params):
        return {}

    def step(self, params, state, sums):
        return {name: p + self.step_size * sums.mean[name] for name, p in params.items()}, {}


@hs.register_method
def bold(step_size: float = 2.0) -> hs.Recipe:
    """FedAvg whose server takes `step_size` times the mean update."""
    if not step_size > 0:
        raise hs.HeadstartError(f"step_size: expected a positive number, got {step_size!r}")
    return hs.Recipe(server=Larger(step_size))


# %% [markdown]
# ## Run them
#
# Every pipeline gets the same splits, cohorts and seeds. With `out=` a stopped comparison goes on where it was.

# %%
pipelines = [
    "Fed3R",
    "Fed3R + FedAvg-20(head)",
    "none + FedAvg-20(head)",
    "none + bold-20(head, step_size=3)",
]
results = hs.compare(
    pipelines, data="digits", clients=30, alpha=0.1, cohort=6, seeds=2, out="runs/figure"
)
for result in results:
    print(f"{result.pipeline:34} {100 * result.accuracy:.1f} ± {100 * result.accuracy.std:.1f}")

# %% [markdown]
# ## The figure
#
# Accuracy by round says that the closed form begins where the others want to arrive. What it costs is another axis: `by="bytes"`.
# Bands are one standard deviation over seeds.

# %%
figure = results.figure(by="round")
figure

# %%
results.figure(by="bytes")

# %% [markdown]
# For the paper: vector graphics and the numbers, which are also in `runs/figure`, with the report.

# %%
figure.savefig("rounds.pdf")
figure.savefig("rounds.svg")
for result in results:
    last = result.runs[0].curve[-1]
    print(f"{result.pipeline:34} {last.up / 1e6:6.2f} MB up")

# %% [markdown]
# Two seeds are few: say `seeds=5` and run it again, and only the new ones are run. The same on the command line, with the method
# above in `bold.py`:
#
# ```
# headstart compare "Fed3R" "none + bold-20(head, step_size=3)" --data digits --seeds 5 --plugin bold.py
# ```
#
# To write a head, a loss or a network of your own: [Add a head or a method](../plugins.md).
