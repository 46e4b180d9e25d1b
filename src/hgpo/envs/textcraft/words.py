"""The words that generated worlds name their items by."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RAW = _words(
    "amber ash bark basalt bone cedar chalk clay coal copper cotton elm fern fleece flint fur gravel hemp horn ivy "
    "jade kelp lead lime marble moss oak peat pine quartz reed resin rubber rush salt sand shell silver slate straw "
    "tallow tin wax willow "
)
"""What worlds have."""

MADE = _words(
    "anchor awl axle basket beam bell bellows bench blade board bolt bowl box brick broom brush bucket button cage "
    "candle cart chain chair chest chisel clamp clock cloth comb cord crate crown cup desk dial door drum fan fence "
    "flask flute frame gate gear glue hammer handle harp hinge hook horseshoe jar kite knife ladder lamp lantern "
    "latch lens lever lock loom mallet mask mast mill mirror mortar mug nail needle net oar oven paddle pan panel "
    "paper peg pipe plate plough pot press pulley rail rake ring rod roof rope rug saddle sail saw scale screw "
    "shelf shield shovel shutter sieve sign sled spade spool spring staff stool stove strap table tent tile torch "
    "tray trowel vase vat wagon wheel whistle wire "
)
"""What is crafted."""

KINDS = _words(
    "carved cast dyed fine forged glazed heavy joined light long mended old painted plain polished rough short sturdy "
)
"""Told before a crafted word where names are two words long."""
