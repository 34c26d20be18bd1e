"""Plans, explanations, status and drift as text. Values in, lines out; colour is the caller's second signal."""

from typing import TYPE_CHECKING

from llmgw.base.later import words_of

if TYPE_CHECKING:
    from llmgw.plan.text.explain import explain_lines
    from llmgw.plan.text.outcome import Columns, Serving, did, ending_lines, outcome_lines, under_way
    from llmgw.plan.text.plan import View, nothing_to_do, plan_lines
    from llmgw.plan.text.spans import Line, Paint, Span, Style, to_text
    from llmgw.plan.text.status import drift_lines, status_cells, status_lines
else:
    __getattr__ = words_of(
        __name__,
        {
            "explain": "explain_lines",
            "outcome": "Columns Serving did ending_lines outcome_lines under_way",
            "plan": "View nothing_to_do plan_lines",
            "spans": "Line Paint Span Style to_text",
            "status": "drift_lines status_cells status_lines",
        },
    )

__all__ = [
    "Columns",
    "Line",
    "Paint",
    "Serving",
    "Span",
    "Style",
    "View",
    "did",
    "drift_lines",
    "ending_lines",
    "explain_lines",
    "nothing_to_do",
    "outcome_lines",
    "plan_lines",
    "status_cells",
    "status_lines",
    "to_text",
    "under_way",
]
