# SPDX-License-Identifier: Apache-2.0
"""The workload file: every fault named at once, with its mend, and the file written back whole."""

from pathlib import Path

import pytest

from forktail.errors import BadInput
from forktail.workload import Sweep, Workload, read_workload, wants_icount, workload_toml

ROOT = Path(__file__).parents[2]


REDIS_BENCHMARK = "[load]\ngenerator = 'redis-benchmark'\n"
MEMTIER = "[load]\ngenerator = 'memtier_benchmark'\n"


def _write(directory: Path, text: str) -> Path:
    path = directory / "some.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted((ROOT / "workloads").rglob("*.toml")), ids=lambda path: path.stem)
def test_each_shipped_workload_is_valid(path: Path) -> None:
    assert read_workload(path).name == path.stem


def test_written_workload_reads_back_the_same(tmp_path: Path) -> None:
    workload = read_workload(ROOT / "workloads" / "quick.toml", ["server.size=2GiB", 'server.config.hz="100"'])
    # A run is one of a sweep's, and its file says nothing of the others.
    one_run = workload.model_copy(update={"sweep": Sweep()})
    assert read_workload(_write(tmp_path, workload_toml(workload))) == one_run


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert read_workload(_write(tmp_path, "")) == Workload(name="some")


def test_set_overrides_the_file() -> None:
    workload = read_workload(ROOT / "workloads" / "quick.toml", ["load.rate=123", "load.arrivals=poisson"])
    assert (workload.load.rate, workload.load.arrivals) == (123, "poisson")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[server]\nsise = '1GiB'", "server.sise is not a known key: did you mean 'size'?"),
        ("[servre]\nsize = '1GiB'", "servre is not a known key: did you mean 'server'?"),
        ("[server]\nsize = '1s'", "server.size: '1s' is no size"),
        ("[server]\nsize = 1024", "server.size: a size needs its unit"),
        ("[run]\nduration = '1MiB'", "run.duration: '1MiB' is no time"),
        ("[load]\nrate = -1", "load.rate: Input should be greater than or equal to 0 (given: -1)"),
        ("[load]\nrate = 0", "load.rate is 0, but forktail-load needs a rate"),
        ("[server]\nengine = 'keybd'", "(given: 'keybd'): did you mean 'keydb'?"),
        ("[server]\nengine = 'memcached'", "(given: 'memcached'): known are keydb, redis, valkey."),
        ("[server]\nengine = 'keydb'\nthreads = 17", "server.threads is 17, but KeyDB has 16 at most"),
        ("[load]\ngenerator = 'memtier'", "(given: 'memtier'): did you mean 'memtier_benchmark'?"),
        ("[load]\npath = '/bin/true'", "forktail-load is a part of forktail: leave load.path empty"),
        (REDIS_BENCHMARK + "keys = 'zipf'", "load.keys is 'zipf', which redis-benchmark cannot do: forktail-load can"),
        (REDIS_BENCHMARK + "set_get = '1:10'", "redis-benchmark sends either SETs or GETs"),
        (REDIS_BENCHMARK + "spin = '1ms'", "load.spin is 1000000, which redis-benchmark cannot do"),
        (MEMTIER + "arrivals = 'poisson'", "load.arrivals is 'poisson', which memtier_benchmark cannot do"),
        (MEMTIER + "writes = 'insert'", "load.writes is 'insert', which memtier_benchmark cannot do"),
        (MEMTIER + "rate = 49", "memtier_benchmark limits each connection: give a multiple of the 50"),
        (MEMTIER + "keys = 'zipf'\nzipf_theta = 5", "load.zipf_theta must be less than 5"),
        (MEMTIER + "[server]\nsize = '2GiB'\nvalue_size = '16B'", "90000000 of 8 digits exist for memtier"),
        ("[load]\narrivals = 'bursty'", "load.arrivals: Input should be 'constant' or 'poisson'"),
        ("[load]\nset_get = '1to10'", "load.set_get: String should match pattern"),
        ("[load]\nset_get = '0:0'", "asks for no query at all"),
        ("[server]\nsize = '1KiB'\nvalue_size = '1MiB'", "not one key fits"),
        ("[snapshot]\nat = '500s'", "the last snapshot is due at 500s, but run.limit is 300s"),
        ("[run]\nduration = '301s'", "run.duration is longer than run.limit"),
        ("[server", "is not TOML"),
        ("emulated = 3", "emulated is a value: make it a section"),
        ("emulated.icount = 'yes'", "emulated.icount is 'yes': give true or false"),
        ("[emulated.load]\nrat = 3", "with its [emulated]: load.rat is not a known key"),
    ],
)
def test_each_fault_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_workload(_write(tmp_path, text))
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read_workload(_write(tmp_path, "[server]\nsise = '1GiB'\n[load]\nrate = -1\n[run]\nduration = '3'"))
    assert "has 3 faults" in str(caught.value)


def test_threads_of_zero_are_the_papers_of_keydb_and_one_of_the_others(tmp_path: Path) -> None:
    path = _write(tmp_path, "")
    threads = {
        engine: read_workload(path, [f"server.engine={engine}"]).server.chosen_threads
        for engine in ("redis", "valkey", "keydb")
    }
    assert threads == {"redis": 1, "valkey": 1, "keydb": 4}
    assert read_workload(path, ["server.engine=keydb", "server.threads=2"]).server.chosen_threads == 2


def test_a_key_is_set_as_toml_writes_it() -> None:
    path = ROOT / "workloads" / "lab" / "icount.toml"
    workload = read_workload(path, ['sweep.vary."server.size"=["64MiB"]', '"load".rate=123', "run . duration = 3s"])
    assert workload.sweep.vary == {"server.size": ["64MiB"]}
    assert (workload.load.rate, workload.run.duration) == (123, 3 * 10**9)


@pytest.mark.parametrize("key", ["server..size", "server size", "[server]", "server.size\nload.rate", "#"])
def test_no_key(key: str) -> None:
    with pytest.raises(BadInput, match=r"is no key: write it as in TOML"):
        read_workload(ROOT / "workloads" / "quick.toml", [f"{key}=1"])


@pytest.mark.parametrize("assignment", ["server.size", "=1GiB", "name.size=1GiB"])
def test_no_assignment(assignment: str) -> None:
    with pytest.raises(BadInput, match=r"assignment|cannot be set"):
        read_workload(ROOT / "workloads" / "quick.toml", ["name='a'", assignment])


def test_missing_file_names_itself(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.toml does not exist"):
        read_workload(tmp_path / "nowhere.toml")


def test_values_for_emulation_replace_others_only_there_and_set_has_the_last_word(tmp_path: Path) -> None:
    path = _write(tmp_path, "[load]\nrate = 9\nclients = 7\n[emulated.load]\nrate = 3\n[emulated.server]\ncpus = '1'")
    ordinary, emulated = read_workload(path), read_workload(path, emulated=True)
    assert (ordinary.load.rate, ordinary.load.clients, ordinary.server.cpus) == (9, 7, "")
    assert (emulated.load.rate, emulated.load.clients, emulated.server.cpus) == (3, 7, "1")
    assert read_workload(path, ["load.rate=5"], emulated=True).load.rate == 5


def test_what_emulated_says_of_the_machine_is_no_part_of_the_workload(tmp_path: Path) -> None:
    path = _write(tmp_path, "[emulated]\nicount = true\n[emulated.load]\nrate = 7")
    assert wants_icount(path)
    assert read_workload(path, emulated=True).load.rate == 7
    assert not wants_icount(_write(tmp_path, "[emulated.load]\nrate = 7"))
