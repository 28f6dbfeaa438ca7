"""The cache is bounded in bytes and drops the least recently used values first."""

from hypothesis import given
from hypothesis import strategies as st

from orga.activities.models.conversations import ByteCache
from tests.support.values.strategies import LAW


def cache_of(max_bytes: int, **sizes: int) -> ByteCache[str]:
    cache: ByteCache[str] = ByteCache(max_bytes)
    for key, size in sizes.items():
        cache.put(key, key.upper(), size)
    return cache


def kept(cache: ByteCache[str], keys: str) -> str:
    return "".join(key for key in keys if cache.get(key) is not None)


def test_the_least_recently_used_values_are_dropped_first() -> None:
    cache = cache_of(30, a=10, b=10, c=10)
    cache.get("a")
    cache.put("d", "D", 15)
    assert kept(cache, "abcd") == "ad"
    assert cache.size == 25


def test_an_exactly_full_cache_keeps_all_values() -> None:
    assert kept(cache_of(30, a=10, b=20), "ab") == "ab"


def test_a_value_larger_than_the_cache_is_not_kept_and_evicts_nothing() -> None:
    cache = cache_of(30, a=10)
    cache.put("b", "B", 31)
    assert kept(cache, "ab") == "a"


def test_a_value_that_has_grown_too_large_is_dropped() -> None:
    cache = cache_of(30, a=10)
    cache.put("a", "new", 31)
    assert (cache.get("a"), cache.size) == (None, 0)


def test_a_dropped_value_takes_no_room() -> None:
    cache = cache_of(30, a=10)
    cache.drop("a")
    cache.drop("never there")
    assert (cache.get("a"), cache.size) == (None, 0)


@LAW
@given(st.lists(st.tuples(st.sampled_from(["get", "put", "drop"]), st.sampled_from("abcde"), st.integers(0, 60))))
def test_the_size_is_the_sum_of_all_values_and_within_the_limit(steps: list[tuple[str, str, int]]) -> None:
    cache: ByteCache[int] = ByteCache(50)
    for kind, key, size in steps:
        if kind == "put":
            cache.put(key, size, size)
            assert (cache.get(key) is not None) == (size <= 50)
        elif kind == "drop":
            cache.drop(key)
            assert cache.get(key) is None
        assert cache.size == sum(cache.get(k) or 0 for k in "abcde") <= 50
