# %% [markdown]
# <!-- SPDX-License-Identifier: Apache-2.0 -->
# # A sweep at a glance
#
# This notebook shows the newest sweep in `results/`, or where `FORKTAIL_RESULTS` points. No cell needs editing: make
# a sweep (`make sweep`) and run all cells again. Before the first one of your own it shows `results/reference/`.

# %%
# %matplotlib inline
import json

import pandas as pd
from IPython.display import Markdown

from forktail.analysis.sweep.figures import fork, interruptions, tail
from forktail.analysis.sweep.frame import cells_frame, changes_frame, headline, verdicts_frame
from forktail.analysis.sweep.newest import newest_sweep

directory, sweep = newest_sweep()
Markdown(headline(directory, sweep))

# %% [markdown]
# ## What was measured
#
# A row is a kernel at one setting. A time is the mean over its valid runs: the mean of the runs' p99s, never the p99
# of all queries together. A query counts as *snapshot* when it arrives from the entry of fork to the end of the
# child, else as *normal*. A kernel marked "again" is the same one measured as if it were another: no difference
# smaller than theirs means anything.

# %%
cells_frame(sweep).style.format(precision=2, na_rep="-")

# %% [markdown]
# ## The tail
#
# A point is the mean over runs; its line reaches from the lowest run to the highest.

# %%
tail(sweep)

# %% [markdown]
# ## Fork, and what comes after it
#
# The default fork copies every page table before it returns. On-demand fork shares them, and the server copies each
# when it first writes to its 2 MiB: an interruption. Async-fork leaves them to the child, and interrupts the server
# for those that it writes to before the child has come to them.

# %%
fork(sweep)

# %%
interruptions(sweep)

# %% [markdown]
# ## From one kernel to another
#
# These hold under emulation too. How far a kernel is from itself "again" is the noise.

# %%
changes = changes_frame(sweep)
changes[changes["here, %"].notna()].style.format({"here, %": "{:+.1f}", "paper, %": "{:+.1f}"}, na_rep="").hide()

# %% [markdown]
# ## What each run says
#
# A run that is not valid counts nowhere above, and says why.

# %%
verdicts_frame(sweep).style

# %%
answers = []
for run in sweep.document["runs"]:
    summary = directory / "runs" / run["name"] / "summary.json"
    if run["valid"] and summary.exists():
        answers.append(f"- **{run['name']}**: {json.loads(summary.read_text())['answer']}")
Markdown("\n".join(answers) or "No run is valid.")

# %% [markdown]
# ## On from here
#
# Every query of a run is in its `queries.parquet`, with class and cause; `events.parquet` has the kernel's events on
# the same clock. pandas, DuckDB or Polars read them as they are. (The reference sweep comes without them.)

# %%
files = sorted((directory / "runs").glob("*/queries.parquet"))
if files:
    queries = pd.read_parquet(files[0], columns=["latency_ns", "class", "cause"])
    counted = queries[queries["class"] != "warmup"].groupby(["class", "cause"], observed=True)["latency_ns"]
    shown = (counted.quantile([0.5, 0.99, 1.0]).unstack() / 1e6).rename(columns={0.5: "p50", 0.99: "p99", 1.0: "max"})
    shown.columns.name = f"ms, in {files[0].parent.name}"
else:
    shown = Markdown(f"`{directory}` has no `queries.parquet`: it was abridged.")
shown
