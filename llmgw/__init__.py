"""llmgw: LLMs served from HPC GPU nodes, placed by the InfiniBand map."""

__version__ = "0.1.0"
