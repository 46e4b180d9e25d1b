"""The template for Sokoban: compact, for tiny models."""

from __future__ import annotations

from hgpo.agents.prompts import AgentContext, CompactTemplate
from hgpo_sokoban.rules import player_of, read_map


class SokobanCompactTemplate(CompactTemplate):
    """The past commands, the places of boxes and goals as seen from the player, the map and the admissible commands.

    A box two rows above and one column to the right of the player is `box up 2 right 1`. The task is left out.
    """

    def render(self, context: AgentContext) -> str:
        """One line. Past observations are left out: the newest shows the whole state."""
        parts = [f"past : {' ; '.join(done for _, done in context.history)}"] if context.history else []
        parts.append(f"now : {self.shorten(context.observation)}")
        return " ".join([*parts, f"can : {' ; '.join(context.admissible)}"])

    def shorten(self, observation: str) -> str:
        """Places and map; an observation without a map stays as it is."""
        state = read_map(observation)
        if not state:
            return super().shorten(observation)
        parts, width = [], state.index("\n") + 1
        row, column = divmod(player_of(state), width)
        for name, symbols in (("box", "$*"), ("goal", ".*+")):
            for cell in (cell for cell, symbol in enumerate(state) if symbol in symbols):
                down, right = cell // width - row, cell % width - column
                parts.append(f"{name} {'down' if down > 0 else 'up'} {abs(down)}")
                parts.append(f"{'right' if right > 0 else 'left'} {abs(right)}")
        return " ".join([*parts, *state.split()])


SOKOBAN_COMPACT = SokobanCompactTemplate()
