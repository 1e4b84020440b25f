"""A shop."""

from fastapi import FastAPI

app = FastAPI()
stock = {"tea": 3}


@app.get("/stock/{item}")
async def in_stock(item: str) -> dict[str, int]:
    """Say how many there are."""
    return {"count": stock.get(item, 0)}
