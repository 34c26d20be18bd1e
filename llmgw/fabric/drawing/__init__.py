"""Pictures of a fabric: what stands where (Layout), and Graphviz text of it."""

from llmgw.fabric.drawing.ask import Ask, Colouring, Part, limited
from llmgw.fabric.drawing.compose import lay_out
from llmgw.fabric.drawing.dot import dot, hint, quoted
from llmgw.fabric.drawing.marks import Marks, change_marks, fault_marks, replica_groups
from llmgw.fabric.drawing.mesh import mesh_dot
from llmgw.fabric.drawing.values import Layout, Look

__all__ = [
    "Ask",
    "Colouring",
    "Layout",
    "Look",
    "Marks",
    "Part",
    "change_marks",
    "dot",
    "fault_marks",
    "hint",
    "lay_out",
    "limited",
    "mesh_dot",
    "quoted",
    "replica_groups",
]
