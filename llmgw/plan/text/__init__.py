"""Plans, explanations, status and drift as text. Values in, lines out; colour is the caller's second signal."""

from llmgw.plan.text.explain import explain_lines
from llmgw.plan.text.plan import View, nothing_to_do, plan_lines
from llmgw.plan.text.spans import Line, Paint, Span, Style, to_text
from llmgw.plan.text.status import drift_lines, status_cells, status_lines

__all__ = [
    "Line",
    "Paint",
    "Span",
    "Style",
    "View",
    "drift_lines",
    "explain_lines",
    "nothing_to_do",
    "plan_lines",
    "status_cells",
    "status_lines",
    "to_text",
]
