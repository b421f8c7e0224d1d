"""Which configured upstream serves a model. A model's name is looked up, never resolved: it cannot name a host."""

from gateway.core.errors import UnknownModel

__all__ = ["DEFAULT_UPSTREAM", "route"]

DEFAULT_UPSTREAM = "default"
MAX_MODEL_CHARS = 256


def route(model: str) -> str:
    """The name of the upstream that serves `model`; raises `UnknownModel` for a name that no upstream could have."""
    if len(model) > MAX_MODEL_CHARS or "://" in model or "\\" in model or ".." in model.split("/"):
        raise UnknownModel(f"the model {_shown(model)!r} does not exist", param="model")
    return DEFAULT_UPSTREAM


def _shown(model: str) -> str:
    return model if len(model) <= 64 else model[:61] + "..."
