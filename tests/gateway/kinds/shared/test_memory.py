"""What tells one answer from another: its calls or its text, and where it stands."""

from typing import Any

from gateway.kinds.shared.memory import MAX_KEYS, Place, key_of_answer, keys_of_history


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def key(*before: dict[str, Any], answer: str = "Done.", scope: str = "s") -> str | None:
    return key_of_answer("k", said("assistant", answer), Place.after(list(before)), scope=scope)


def test_the_same_words_in_another_place_are_another_answer() -> None:
    first, go_on = said("user", "Do it."), said("user", "Go on.")
    keys = [
        key(first),
        key(said("user", "Do that.")),
        key(first, said("assistant", "Done."), go_on),
        key(first, said("assistant", "Done."), go_on, said("assistant", "Done."), go_on),
        key(first, scope="other"),
        key(first, answer="Not done."),
    ]
    assert len(set(keys)) == len(keys)


def test_what_may_be_rendered_anew_does_not_count() -> None:
    plain = key(said("user", "Do it."))
    assert key(said("system", "Be brief."), said("user", [{"type": "text", "text": "Do it."}])) == plain
    assert key(said("user", "Do it."), answer=" Done.\n") == plain


def test_the_key_at_the_end_is_found_in_the_history_that_follows() -> None:
    history = [said("user", "one"), said("assistant", "A"), said("tool", "x"), said("user", "two")]
    last = said("assistant", "B")
    found = keys_of_history("k", {"messages": [*history, last, said("user", "three")]}, scope="s")
    assert found[0] == key_of_answer("k", last, Place.after(history), scope="s")
    assert len(found) == 2


def test_of_a_long_history_the_newest_answers_are_looked_up() -> None:
    messages = [said("assistant", str(number)) for number in range(MAX_KEYS + 9)]
    found = keys_of_history("k", {"messages": ["odd", *messages]}, scope="s")
    assert len(found) == MAX_KEYS
    assert found[0] == key_of_answer("k", messages[-1], Place.after(messages[:-1]), scope="s")
    assert keys_of_history("k", {"messages": 5}, scope="s") == ()
    assert key_of_answer("k", said("assistant", None), Place(), scope="s") is None
