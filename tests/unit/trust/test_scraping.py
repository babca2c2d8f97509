"""The token for figures: right or wrong, and never right by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.model.errors import BadKey, NotFound
from headgate.trust.tokens import MIN_CHARS, is_token, load_token, make_token


def test_only_the_token_of_the_file_is_right(tmp_path: Path) -> None:
    path = tmp_path / "metrics.token"
    assert not is_token(path, "")
    with pytest.raises(NotFound):
        load_token(path)
    make_token(path)
    token = path.read_text().strip()
    assert len(token) >= MIN_CHARS
    assert is_token(path, token)
    assert not any(is_token(path, one) for one in ("", token[:-1], token + "x", "\u2603" * 40))
    path.unlink()
    make_token(path)
    assert not is_token(path, token), "a new one counts at once"


@pytest.mark.parametrize("content", [b"", b"\n", b"short\n", b"x" * 10_000])
def test_a_file_that_holds_no_token_makes_none_right(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.token"
    path.write_bytes(content)
    path.chmod(0o600)
    assert not is_token(path, content.decode().strip())


def test_a_file_that_others_can_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.token"
    path.write_text("x" * MIN_CHARS)
    path.chmod(0o644)
    assert not is_token(path, "x" * MIN_CHARS)
    with pytest.raises(BadKey, match="chmod 600"):
        load_token(path)
