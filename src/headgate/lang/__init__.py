"""Text to syntax and back: grammar files, parsers and renderers (design section 4).

Guarantees: `parse(render(t)) == t` for every tree a parser makes; whatever does not parse is refused with
`bad-expression`, its line and column, and what was expected.
Leaves out: meaning and type checking (`decide`).
"""

from headgate.lang.parse import parse_condition
from headgate.lang.render import render_condition

__all__ = ["parse_condition", "render_condition"]
