# %% [markdown]
# <!-- SPDX-License-Identifier: Apache-2.0 -->
# # Fork, and the interruptions after it
#
# How long fork takes and how often it interrupts the server afterwards, in the manner of Figures 3 and 11 of the
# Async-fork paper (P, VLDB 2023) and Figure 13 of its authors' post (B). On the left is the newest sweep in
# `results/` (or `FORKTAIL_RESULTS`), on the right what they say in numbers. The sweeps for it:
# `workloads/fig03.toml`, `fig09.toml` and `blog13.toml` on a host of the paper's size,
# `workloads/lab/fork-by-size.toml` in the lab.

# %%
# %matplotlib inline
from IPython.display import Markdown

from forktail.analysis.sweep.by_size import blog_13, figure_3, figure_11
from forktail.analysis.sweep.frame import cells_frame, changes_frame, headline
from forktail.analysis.sweep.newest import newest_sweep

directory, sweep = newest_sweep()
Markdown(headline(directory, sweep))

# %% [markdown]
# ## Figure 3: the default fork
#
# In the paper it takes under 10 ms at 1 GB and over 600 ms at 64 GB, in step with the size, and more than 97 % of it
# copies page tables (section 3.1). A small server's share is smaller: a process costs something, whatever it holds.

# %%
figure_3(sweep)

# %% [markdown]
# ## Figure 11: interruptions
#
# Calls of `copy_pmd_range` by the server after fork. On demand there is one for each 2 MiB that is written to while
# the snapshot lasts, so nearly one for each page table, unless values are of a page and more (`docs/kernels.md`);
# Async-fork has them only while the child still copies. Counts hold under emulation; the buckets are of durations,
# which do not.

# %%
figure_11(sweep)

# %% [markdown]
# ## The post's Figure 13: when fork returns

# %%
blog_13(sweep)

# %% [markdown]
# ## The same as changes

# %%
changes = changes_frame(sweep)
changes = changes[changes["metric"].isin(["fork", "interruptions"])]
changes.style.format({"here, %": "{:+.1f}", "paper, %": "{:+.1f}"}, na_rep="").hide()

# %%
cells_frame(sweep).filter(regex="valid|fork|copy|interruptions|service").style.format(precision=3, na_rep="-")
