"""Secrets that the gateway makes for itself, once for all its processes."""

from collections.abc import Callable

from attrs import frozen

from gateway.core.ports import Store, StoreError

__all__ = ["Secret", "kept_secret"]

_TRIES = 3


@frozen(kw_only=True)
class Secret:
    """A secret, and whether all processes of the store have the same one."""

    value: bytes
    is_shared: bool


async def kept_secret(store: Store, name: str, make: Callable[[], bytes]) -> Secret:
    """The secret of this name: the one in the store, or the one that `make` gives, from now on for everybody.

    While the store is away it is one for this process alone. Who asks again with the secret in hand as `make` puts it
    back into a store that has lost it.
    """
    key = f"secret:{name}"
    made = make()
    try:
        # Of those who begin at once one writes its own; the others find that the next time round.
        for _ in range(_TRIES):
            found = await store.get(key)
            if key in found:
                return Secret(value=found[key], is_shared=True)
            if await store.swap(key, None, made):
                return Secret(value=made, is_shared=True)
    except StoreError:
        pass
    return Secret(value=made, is_shared=False)
