"""Plans, explanations, status and drift as text. Values in, lines out; colour is the caller's second signal."""

from llmgw.plan.text.plan import View, nothing_to_do, plan_lines
from llmgw.plan.text.spans import Line, Paint, Span, Style, to_text

__all__ = ["Line", "Paint", "Span", "Style", "View", "nothing_to_do", "plan_lines", "to_text"]
