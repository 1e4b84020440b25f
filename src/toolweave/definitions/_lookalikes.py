"""Names that look like others: letters of other scripts, full-width forms, digits instead of letters. Pure."""

from __future__ import annotations

_LETTERS = str.maketrans(
    # Cyrillic, Greek, Armenian and other letters with the shape of a Latin one
    "аеорсухіјѕԁһԛԝѵӏгкмтвпАВЕКМНОРСТУХЅІЈ" + "αεικνορτυχγηΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "օոսցհɡıℓ",
    "aeopcyxijsdhqwvlrkmtbnABEKMHOPCTYXSIJ" + "aeiknoptuxynABEZHIKMNOPTYX" + "onughgil",
)
_DIGITS = str.maketrans("01", "ol")


def skeleton(name: str) -> str:
    """Return the visual form of a name: lower case, look-alikes as Latin letters, 0 as o and 1 as l."""
    if not name.isascii():
        import unicodedata  # hardly any name needs it

        # NFKC first: full-width and mathematical letters become plain ones by it, so that the table needs only letters
        # of other scripts (Unicode TR 39, skeleton, for names of tools).
        name = unicodedata.normalize("NFKC", name).translate(_LETTERS)
    return name.lower().translate(_DIGITS)


def lookalike_of(name: str) -> str | None:
    """Return the plain name that a name with letters of other scripts looks like; None for every other name.

    A name that is wholly in another script looks like none.
    """
    if name.isascii():
        return None
    shape = skeleton(name)
    if shape.isascii() and any(char.isalpha() for char in shape):
        return shape
    return None
