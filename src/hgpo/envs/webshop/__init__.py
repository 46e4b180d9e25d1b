"""WebShop: shopping tasks as in princeton-nlp/WebShop's text simulator, with a native search engine (no Java)."""

from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.env import WebShopEnv
from hgpo.envs.webshop.expert import Expert
from hgpo.envs.webshop.generator import ShopSize, generate_catalog
from hgpo.envs.webshop.goals import Goal
from hgpo.envs.webshop.product import Product
from hgpo.envs.webshop.reward import RewardParts
from hgpo.envs.webshop.suite import webshop_suite

__all__ = [
    "Catalog",
    "Expert",
    "Goal",
    "Product",
    "RewardParts",
    "ShopSize",
    "WebShopEnv",
    "generate_catalog",
    "webshop_suite",
]
