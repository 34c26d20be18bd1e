"""What the cables are: ibnetdiscover's text in, the fabric out."""

from llmgw.fabric.paths import Domain, NodePath, Paths, Rail, ShortCable

__all__ = ["Domain", "NodePath", "Paths", "Rail", "ShortCable"]
