# SPDX-License-Identifier: Apache-2.0
"""A text that nobody may read by accident."""

import pickle

from broker_core.base.secret import Secret


def test_it_shows_in_no_text() -> None:
    """Every usual way of making a text of it gives stars, inside of other values too."""
    secret = Secret("hush-hush")
    texts = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>20}",
        str([secret]),
        str({"a": secret}),
    ]
    assert all("***" in text and "hush" not in text for text in texts)
    assert secret.reveal() == "hush-hush"


def test_it_is_equal_to_the_same_secret_only() -> None:
    """Clients are kept by their credentials; a plain text must never count as one."""
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_it_travels_in_a_pickle() -> None:
    """So Spark hands it to its tasks, lone surrogates included."""
    assert [pickle.loads(pickle.dumps(Secret(text))) == Secret(text) for text in ("a", "", "\udc80")] == [True] * 3


def test_an_empty_one_is_false() -> None:
    """As an empty text is."""
    assert [bool(Secret("")), bool(Secret("a"))] == [False, True]
