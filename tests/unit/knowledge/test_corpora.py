"""The corpora contain many cases, each with its own id and the source of its trick."""

from tests.support.values.corpora import FOLDER, corpus

ALL = [case for path in sorted(FOLDER.glob("*.toml")) for part in corpus(path.stem).values() for case in part]


def test_there_are_at_least_150_cases() -> None:
    assert len(ALL) >= 150


def test_every_case_names_its_source() -> None:
    assert [case["id"] for case in ALL if not case.get("source")] == []


def test_no_two_cases_of_a_list_have_the_same_id() -> None:
    for path in FOLDER.glob("*.toml"):
        for part in corpus(path.stem).values():
            assert len({case["id"] for case in part}) == len(part)
