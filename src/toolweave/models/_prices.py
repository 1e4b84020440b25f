"""The cost of a turn: from its provider, from a price of the user, or from the price list of `genai-prices`.

Pure; the price list is imported only for a cost that is needed and not known otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec

from toolweave.models._base import Finished, Model, Usage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens.

    Attributes:
        input: Tokens of the request.
        output: Tokens of the answer, thoughts included.
        cached: Tokens of the request that the provider read from its cache; None is the price of `input`.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None

    def __post_init__(self) -> None:
        if min(self.input, self.output, self.cached or 0.0) < 0:
            raise ValueError(f"no price is below 0, not {self!r}")

    def of(self, usage: Usage) -> float:
        """Return the cost of this usage, in US dollars."""
        cached = self.input if self.cached is None else self.cached
        # Cached tokens are a part of the input tokens, and would otherwise be paid twice.
        new = usage.input_tokens - usage.cached_tokens
        return (new * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / _MILLION


FREE = Price()
"""The price of models that run on one's own machine."""


def priced(finished: Finished, model: Model) -> Finished:
    """Return a turn with its cost, if its provider reported it or its model has a price, and with the model's name."""
    # The provider's own figure is the best one, then a price that the owner gave. A turn without tokens has no cost to
    # compute, except for a model that is free in any case.
    answered = finished.model or model.name
    price = getattr(model, "price", None)
    if finished.usage.cost is not None or not isinstance(price, Price) or not (finished.usage.tokens or price == FREE):
        if finished.model is not None:
            return finished
        return replace(finished, model=answered)
    return replace(finished, model=answered, usage=replace(finished.usage, cost=price.of(finished.usage)))


def with_listed_price(finished: Finished) -> Finished:
    """Return a turn with its cost by the price list, unchanged if the cost is known or the list lacks the model.

    The list is the package `genai-prices`, of the extra `toolweave[prices]`.
    """
    usage = finished.usage
    name = finished.model
    if usage.cost is not None or name is None or not usage.tokens or find_spec("genai_prices") is None:
        return finished
    import genai_prices  # late: it takes about 0.2 s of CPU, and only runs with a cost limit need it

    used = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_written_tokens,
    )
    # A model that the list lacks is not an error here: a run with a cost limit reports it.
    try:
        if "://" in name:
            url, _, model = name.partition("#")
            found = genai_prices.calc_price(used, model, provider_api_url=url)
        else:
            provider, _, model = name.partition(":")
            found = genai_prices.calc_price(used, model, provider_id=provider)
    except (LookupError, ValueError):
        return finished
    return replace(finished, usage=replace(usage, cost=float(found.total_price)))
