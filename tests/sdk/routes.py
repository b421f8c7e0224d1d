"""Which demo models the SDKs ask, and under which rule."""

from attrs import frozen


@frozen(kw_only=True)
class Route:
    """A model that writes its calls in one way, and the rule under which it is asked."""

    model: str
    rules: str = ""

    def __str__(self) -> str:
        return f"{self.model} {self.rules.partition('=')[2] or 'table'}".replace(" ", "-")


ROUTES = [
    Route(model="demo-native"),
    Route(model="demo-native", rules="*=native"),
    Route(model="demo-xml"),
    Route(model="demo-xml", rules="*=xml_prompt"),
    Route(model="demo-hermes"),
    Route(model="demo-hermes", rules="*=xml_prompt:hermes"),
    Route(model="demo-json"),
]
