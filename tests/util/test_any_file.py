"""Whatever a file is, its reader makes something of it, or refuses it in one sentence that names it."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlens.errors import HeadlensError, InputError
from support import hostile
from support.inputfiles import READERS


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_text_is_told_with_its_line(tmp_path, kind):
    read, name, good = READERS[kind]
    for what, content in hostile.broken_texts(good).items():
        path = tmp_path / f"{what}-{name}"
        path.write_bytes(content)
        with pytest.raises(InputError) as refused:
            read(path)
        assert str(refused.value).startswith(f"{path}, line ")


@pytest.mark.parametrize("kind", READERS)
def test_odd_text_is_read_or_refused(tmp_path, kind):
    read, name, good = READERS[kind]
    path = tmp_path / name
    path.write_text(good, encoding="utf-8", newline="")
    expected = read(path)
    for what, content in hostile.odd_texts(good).items():
        path.write_bytes(content)
        found = hostile.result_or_refusal(read, path)
        if what in ("crlf", "cr", "bom", "mixed"):
            assert _told(found) == _told(expected), what
        elif isinstance(found, HeadlensError):
            assert path.name in str(found)


def _told(found):
    """What was read, without the hash of the bytes."""
    return repr(found).replace(getattr(found, "sha256", None) or "-", "")


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    read, name, _ = READERS[kind]
    tracemalloc.start()
    (tmp_path / f"folder-{name}").mkdir()
    for path in [*hostile.no_files(tmp_path, name), tmp_path / f"folder-{name}", tmp_path / f"\0{name}"]:
        with hostile.within(5), pytest.raises(InputError) as refused:
            read(path)
        assert str(path) in str(refused.value)
        assert refused.value.remedy
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.parametrize("kind", READERS)
@hostile.examples(20)
@given(data=st.data())
def test_any_bytes(tmp_path_factory, kind, data):
    read, name, good = READERS[kind]
    path = tmp_path_factory.getbasetemp() / f"any-{name}"
    path.write_bytes(data.draw(hostile.damaged(good.encode())))
    found = hostile.result_or_refusal(read, path)
    if isinstance(found, HeadlensError):
        assert path.name in str(found)
