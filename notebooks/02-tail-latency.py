# %% [markdown]
# <!-- SPDX-License-Identifier: Apache-2.0 -->
# # Tail latency by kernel and size
#
# p99 and maximum of normal and of snapshot queries, in the manner of Figures 4, 5, 9 and 10 of the Async-fork paper
# (P, VLDB 2023). On the left is the newest sweep in `results/` (or `FORKTAIL_RESULTS`), on the right what the paper
# says in numbers; what it only draws is not here. The sweeps for it: `workloads/fig04.toml` and `fig09.toml` on a
# host of the paper's size, `workloads/lab/fork-by-size.toml` in the lab.

# %%
# %matplotlib inline
from IPython.display import Markdown

from forktail.analysis.papers import read_papers
from forktail.analysis.sweep.by_size import figure_4, figure_5, figure_9, figure_10
from forktail.analysis.sweep.frame import cells_frame, changes_frame, headline
from forktail.analysis.sweep.newest import newest_sweep

directory, sweep = newest_sweep()
Markdown(headline(directory, sweep))

# %%
paper = read_papers().papers["P"]
Markdown(
    f"P: *{paper.title}*, {paper.where}. Measured on {paper.machine}; 50 clients, 50,000 SETs a second, five repeats."
)

# %% [markdown]
# ## Figure 4: p99, default and on-demand fork
#
# The paper has two numbers for the default at 64 GB: 991.9 ms in section 1 and 911.95 ms in section 3.2. Both are
# drawn.

# %%
figure_4(sweep)

# %% [markdown]
# ## Figure 5: the slowest query
#
# A query that arrives just before the fork waits for it too, and is normal all the same: it did not arrive in the
# window. So the slowest *normal* query of the default kernel can be as slow as the fork is long. The paper's text
# gives no number for normal queries.

# %%
figure_5(sweep)

# %% [markdown]
# ## Figure 9: p99, on-demand fork and Async-fork

# %%
figure_9(sweep)

# %% [markdown]
# ## Figure 10: the slowest snapshot query

# %%
figure_10(sweep)

# %% [markdown]
# ## The same as changes
#
# A change from one kernel to another may be compared with the paper's where times may not: but only at the same size,
# and the paper's rate is 50,000 a second. A p99 shows a fork only when more than one query in a hundred of the window
# arrives during it, which is what makes it small at small sizes.

# %%
changes = changes_frame(sweep)
changes = changes[changes["metric"].isin(["p99 of snapshot queries", "slowest snapshot query"])]
changes.style.format({"here, %": "{:+.1f}", "paper, %": "{:+.1f}"}, na_rep="").hide()

# %%
cells_frame(sweep).filter(regex="valid|normal|snapshot").style.format(precision=3, na_rep="-")
