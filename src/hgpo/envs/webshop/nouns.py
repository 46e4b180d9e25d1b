"""Noun taggers for the title score of WebShop's reward.

A tagger is a function from a title to its nouns:

- `"blank"`: every alphabetic word that is no stop word, as in the recorded sessions, which used spaCy's blank English
  pipeline. The rules of its tokenizer that affect alphabetic tokens are implemented here, without spaCy.
- `"spacy:MODEL"`: tokens that a spaCy model tags NOUN or PROPN, as in the published simulator (`en_core_web_sm`).

Scores differ between the two, so every `info` names the tagger.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

NounTagger = Callable[[str], tuple[str, ...]]

_STOP_WORDS = """
a about above across after afterwards again against all almost alone along already also although always am among
amongst amount an and another any anyhow anyone anything anyway anywhere are around as at back be became because
become becomes becoming been before beforehand behind being below beside besides between beyond both bottom but by ca
call can cannot could did do does doing done down due during each eight either eleven else elsewhere empty enough even
ever every everyone everything everywhere except few fifteen fifty first five for former formerly forty four from
front full further get give go had has have he hence her here hereafter hereby herein hereupon hers herself him
himself his how however hundred i if in indeed into is it its itself just keep last latter latterly least less made
make many may me meanwhile might mine more moreover most mostly move much must my myself name namely neither never
nevertheless next nine no nobody none noone nor not nothing now nowhere of off often on once one only onto or other
others otherwise our ours ourselves out over own part per perhaps please put quite rather re really regarding same say
see seem seemed seeming seems serious several she should show side since six sixty so some somehow someone something
sometime sometimes somewhere still such take ten than that the their them themselves then thence there thereafter
thereby therefore therein thereupon these they third this those though three through throughout thru thus to together
too top toward towards twelve twenty two under unless until up upon us used using various very via was we well were
what whatever when whence whenever where whereafter whereas whereby wherein whereupon wherever whether which while
whither who whoever whole whom whose why will with within without would yet you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""spaCy's English stop words without the clitics, which are not alphabetic."""

_PUNCTUATION = r",:;!?¿؟¡()\[\]{}<>_#*&。？！，、；：～·।،۔؛٪"
_QUOTES = r"'\"”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_CURRENCY = r"(?:US\$|C\$|A\$|[$£€¥฿₠-₿﷼])"
_UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h kmh mph hPa Pa "
    "mbar mb MB kb KB gb GB tb TB T G M K %"
)
_LETTER, _LOWER, _UPPER = r"[^\W\d_]", "[a-zß-öø-ÿ]", "[A-ZÀ-ÖØ-Þ]"
_PREFIX = re.compile(rf"\.\.+|…|{_CURRENCY}|\+(?![0-9])|[§%=—–{_PUNCTUATION}{_QUOTES}]")
_SUFFIX = re.compile(
    rf"(?:\.\.+|…|['’][sS]|[—–{_PUNCTUATION}{_QUOTES}]|(?<=[0-9])(?:\+|{_CURRENCY}|{'|'.join(_UNITS.split())})"
    rf"|(?<=[0-9%²\-+{_PUNCTUATION}{_QUOTES}])\.|(?<={_LOWER})\.|(?<={_UPPER}{_UPPER})\.)$"
)
_INFIX = re.compile(
    rf"\.\.+|…|(?<=[0-9])[+\-*^](?=[0-9-])|(?<={_LETTER}),(?={_LETTER})|(?<=[{_QUOTES}])\.(?=[{_QUOTES}])"
    rf"|(?<={_LOWER})\.(?=[{_QUOTES}])|(?<=[{_QUOTES}])\.(?={_UPPER})|(?<={_LOWER})\.(?={_UPPER})"
    rf"|(?<=[^\W_])(?:---?|——?|[-–~])(?={_LETTER})|(?<=[^\W_])[:<>=/](?={_LETTER})"
)
_ADDRESS = re.compile(
    r"(?:[\w+\-.]{2,}://)?(?:\S+@)?(?:[A-Za-z0-9\u00a1-\uffff][\w\u00a1-\uffff-]*\.)+"
    rf"{_LOWER}{{2,63}}(?::\d{{2,5}})?(?:[/?#]\S*)?"
)
_ABBREVIATION = re.compile(
    r"(?:Adm|Ak|Ala|Apr|Ariz|Ark|Aug|Bros|Calif|Co|Colo|Conn|Corp|Dec|Del|Dr|Feb|Fla|Ga|Gen|Gov|Ia|Id|Ill|Inc|Ind|Jan|Jr"
    r"|Jul|Jun|Kans?|Ky|La|Ltd|Mar|Mass|Md|Messrs|Mich|Minn|Miss|Mo|Mont|Mrs?|Ms|Mt|Nebr?|Nev|Nov|Oct|Okla|Ore|Pa|Ph\.D"
    r"|Prof|Rep|Rev|Sen|Sept?|St|Tenn|Va|Wash|Wis|co|vs|[a-zäöü])\.|['’](?:[Ss]|d|ll|re|em|nuff|bout|[Cc](?:ause|[ou]s|[ou]z))"
    r"|(?:[Dd]o|[Gg]o|[Hh]av|[Ll]ov|[NnMm]oth|[Nn]uth|[Ss]ometh)in['’]|[Oo]l['’]|w/o"
)
"""The tokenizer does not split these, so they are not alphabetic."""
_CONTRACTION = re.compile(
    r"(?!(?:it?s|ill|ire|[hw]ell|were|she(?:d|ll)|whore)$)"
    r"(?:(ai|are|ca|could|dare|did|do|does|had|has|have|is|may|might|must|need|ought|sha|should|was|were|wo|would)(nt)(ve)?"
    r"|(i|you|he|she|it|we|they|who|what|when|where|why|how|this|that|these|those|there)(d|s|ll|re)(ve)?"
    r"|(i|you|we|they|who|what|when|where|why|how|these|those|there|could|might|must|not|should|would)(ve)"
    r"|(i)(m)a?|(y)all|(gon)(na)|(got)(ta)|(ai|dare|need|ought|sha|wo)n['’]t(?:['’]ve)?|[1-9]\d?(pm))"
)
"""Contractions, with and without their apostrophe, and the parts that are alphabetic."""


def noun_tagger(name: str) -> NounTagger:
    """The tagger called `name`: "blank" or "spacy:MODEL". The results are cached."""
    kind, _, model = name.partition(":")
    if name == "blank":
        return lru_cache(maxsize=1 << 16)(blank_nouns)
    if kind == "spacy" and model:
        return lru_cache(maxsize=1 << 16)(_spacy_tagger(model))
    raise ValueError(f"nouns={name!r}; choose 'blank' or 'spacy:MODEL', e.g. 'spacy:en_core_web_sm'")


def blank_nouns(title: str) -> tuple[str, ...]:
    """Lower-case alphabetic words of a title that are no stop words, repetitions included.

    Example: `blank_nouns("100-Pack of Women's T-Shirts, 8oz") == ("pack", "women", "t", "shirts", "oz")`.
    """
    spaced = "".join(" " if unicodedata.category(character) == "So" else character for character in title)
    words = (word for chunk in spaced.split() for word in _pieces(chunk))
    return tuple(word.lower() for word in words if word.isalpha() and word.lower() not in STOP_WORDS)


def _pieces(chunk: str) -> list[str]:
    """The tokens of a text without spaces: prefixes and suffixes are split off first, then the rest at infixes."""
    after: list[str] = []
    while True:
        whole = _whole(chunk)
        if whole is not None:
            return [*whole, *after[::-1]]
        prefix, suffix = _PREFIX.match(chunk), _SUFFIX.search(chunk)
        if prefix is None and suffix is None:
            return [*_INFIX.split(chunk), *after[::-1]]
        if suffix is not None and suffix.start() >= (prefix.end() if prefix else 0):
            after.append(suffix[0])
            chunk = chunk[: suffix.start()]
        if prefix is not None:
            chunk = chunk[prefix.end() :]


def _whole(chunk: str) -> list[str] | None:
    """The alphabetic parts of an address, abbreviation or contraction; None for other text."""
    if _ABBREVIATION.fullmatch(chunk) or _ADDRESS.fullmatch(chunk):
        return []
    parts = _CONTRACTION.fullmatch(chunk[:1].lower() + chunk[1:])
    return None if parts is None else [part for part in parts.groups() if part]


def _spacy_tagger(model: str) -> NounTagger:
    try:
        spacy = importlib.import_module("spacy")
    except ImportError as error:
        raise ValueError(f"nouns='spacy:{model}' needs spaCy: pip install spacy, and the model {model}") from error
    try:
        pipeline = spacy.load(model)
    except OSError as error:
        raise ValueError(f"nouns='spacy:{model}': {error}") from error

    def tag(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in pipeline(title) if token.pos_ in ("NOUN", "PROPN"))

    return tag
